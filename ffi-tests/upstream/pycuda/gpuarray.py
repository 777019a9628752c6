"""Arrays in memory of the device."""


class GPUArray:
    """An array in memory that something else owns."""

    def __init__(self, shape, dtype, gpudata):
        self.shape = shape
        self.dtype = dtype
        self.gpudata = gpudata
