"""The release of cuda-bindings."""


def binding_version() -> tuple[int, ...]:
    import cuda.bindings

    return tuple(int(part) for part in cuda.bindings.__version__.split(".")[:3])
