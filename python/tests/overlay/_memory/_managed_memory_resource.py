"""The module of the resources, under upstream's name."""

import sys

from .. import _resources

sys.modules[__name__] = _resources
