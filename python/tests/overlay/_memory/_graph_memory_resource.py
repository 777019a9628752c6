"""The module of memory of graphs, under upstream's name."""

import sys

from .. import _graph_memory

sys.modules[__name__] = _graph_memory
