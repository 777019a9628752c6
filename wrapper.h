/*
 * Every C declaration that the project makes or uses, in one include: what the conformance tests give to bindgen, to
 * the C and to the C++ compiler.
 */
#include "cuda-sys/wrapper.h"

#include "include/vkgdr.h"
#include "vkgdr-sys/wrapper.h"

#include "include/cudamem.h"
