"""What `campaign/ram` stores, and with what: `memcached.py`, `machines.py`, and `stored.py` for the
repositories."""
