"""Creation of contexts."""

from pycuda.driver import Context


def make_default_context():
    """Creates a context on the first device, and makes it current."""
    return Context(0)
