"""DLPack's device types, which upstream's tests name."""

import enum


class DLDeviceType(enum.IntEnum):
    """The types of devices."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLCUDAManaged = 13
