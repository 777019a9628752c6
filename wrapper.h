/*
 * Every C declaration that the project makes or uses, in one include: what the conformance tests give to bindgen, to
 * the C and to the C++ compiler.
 */
#include "cuda-sys/wrapper.h"

#include "include/vkgdr.h"
#include "vkgdr-sys/wrapper.h"

#include "ucx-sys/wrapper.h"

#include "include/cudamem.h"
#include "include/cudamem/adaptors.h"
#include "include/cudamem/engine.h"
#include "include/cudamem/graphs.h"
#include "include/cudamem/interchange.h"
#include "include/cudamem/memory.h"
#include "include/cudamem/sharing.h"
#include "include/cudamem/signals.h"
#include "include/cudamem/views.h"
