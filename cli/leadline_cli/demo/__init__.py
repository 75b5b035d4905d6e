"""`leadline demo`: kill the leaders of a cluster under load, and check every acknowledged line."""
