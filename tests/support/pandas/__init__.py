"""pandas, for the tests of data frames."""
