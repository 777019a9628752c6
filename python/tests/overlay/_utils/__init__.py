"""Names of upstream's tests."""
