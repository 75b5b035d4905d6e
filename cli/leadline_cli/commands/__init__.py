"""The subcommands of `leadline`, a module for each group of them."""
