"""A private name of cuda.core, for its own tests."""

from enum import IntEnum


class DLDeviceType(IntEnum):
    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLCUDAManaged = 13
