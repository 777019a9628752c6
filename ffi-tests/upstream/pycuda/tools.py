"""Making contexts."""

from pycuda.driver import Context


def make_default_context():
    """A context of the first device, which is current."""
    return Context(0)
