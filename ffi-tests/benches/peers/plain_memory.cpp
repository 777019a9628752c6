// What a driver says of memory that is page-locked in different ways, and what freeing plain memory in stream order
// costs and changes. It calls the driver only, and needs no toolkit. A host function that waits blocks a stream.
//
//     g++ -std=c++17 -O2 -I cuda-sys plain_memory.cpp -l:libcuda.so.1 -lpthread -o plain_memory

#include <wrapper.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

using Clock = std::chrono::steady_clock;
using Allocate = std::function<CUresult(CUdeviceptr *, size_t)>;
using Free = std::function<CUresult(CUdeviceptr)>;

constexpr size_t SIZES[] = {4 << 10, 1 << 20, 256 << 20};

static CUdevice device;
static CUstream stream, service, blocked;
static std::atomic<int> gate;
// The unit of virtual memory.
static size_t unit;

static const char *name(CUresult code) {
    const char *text = "?";
    cuGetErrorName(code, &text);
    return text;
}

static void check(CUresult code, const char *call) {
    if (code != 0) {
        std::printf("%s: %s\n", call, name(code));
        std::exit(1);
    }
}
#define CU(call) check((call), #call)

static double microseconds(Clock::time_point since) {
    return std::chrono::duration<double, std::micro>(Clock::now() - since).count();
}

static void wait_at_the_gate(void *) {
    while (gate == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

static void block() {
    gate = 0;
    CU(cuLaunchHostFunc(blocked, wait_at_the_gate, nullptr));
}

static void release() {
    gate = 1;
    CU(cuStreamSynchronize(blocked));
}

// Makes a call on a thread of its own while a stream is blocked. Prints its result, and whether it waited.
static void beside_a_block(const char *what, const std::function<CUresult()> &call) {
    CUcontext context;
    CU(cuCtxGetCurrent(&context));
    std::atomic<bool> done{false};
    CUresult code = CUresult();
    double took = 0;
    std::thread caller([&] {
        cuCtxSetCurrent(context);
        const auto begin = Clock::now();
        code = call();
        took = microseconds(begin);
        done = true;
    });
    const auto begin = Clock::now();
    while (!done && microseconds(begin) < 1e6) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool waited = !done;
    gate = 1;
    caller.join();
    std::printf("  %-66s %s, %s (%.0f us)\n", what, name(code), waited ? "WAITED" : "at once", took);
    CU(cuStreamSynchronize(blocked));
}

struct Source {
    const char *name;
    Allocate allocate;
    Free free;
};

static CUmemoryPool host_pool(CUmemLocationType place, uint64_t threshold) {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {place, 0};
    CUmemoryPool pool;
    const CUresult made = cuMemPoolCreate(&pool, &properties);
    if (made != 0) {
        std::printf("a pool of host memory: %s\n", name(made));
        return nullptr;
    }
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CU(cuMemPoolSetAccess(pool, &access, 1));
    int off = 0;
    CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &off));
    CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    return pool;
}

static CUresult virtual_memory(CUdeviceptr *address, size_t size) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
    CUresult code = cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (code != 0) return code;
    size = (size + unit - 1) / unit * unit;
    CUmemGenericAllocationHandle handle;
    if ((code = cuMemCreate(&handle, size, &properties, 0)) != 0) return code;
    if ((code = cuMemAddressReserve(address, size, 0, 0, 0)) != 0) return code;
    if ((code = cuMemMap(*address, size, 0, handle, 0)) != 0) return code;
    const CUmemAccessDesc access[] = {
        {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {{CU_MEM_LOCATION_TYPE_HOST, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    };
    if ((code = cuMemSetAccess(*address, size, access, 2)) != 0) return code;
    return cuMemRelease(handle);
}

static CUresult end_virtual_memory(CUdeviceptr address, size_t size) {
    size = (size + unit - 1) / unit * unit;
    const CUresult code = cuMemUnmap(address, size);
    return code != 0 ? code : cuMemAddressFree(address, size);
}

static void *host(CUdeviceptr address) { return reinterpret_cast<void *>(address); }

static CUresult host_alloc(CUdeviceptr *address, size_t size) {
    void *pointer = nullptr;
    const CUresult code = cuMemHostAlloc(&pointer, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    *address = reinterpret_cast<CUdeviceptr>(pointer);
    return code;
}

// What the driver says of an address inside an allocation.
static void describe(const char *source, CUdeviceptr address) {
    std::printf("\n%s at %#llx:\n", source, address);
    const struct {
        const char *name;
        CUpointer_attribute which;
        int width;
    } attributes[] = {
        {"context", CU_POINTER_ATTRIBUTE_CONTEXT, 8},
        {"memory type (1 host, 2 device)", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4},
        {"device pointer", CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 8},
        {"host pointer", CU_POINTER_ATTRIBUTE_HOST_POINTER, 8},
        {"sync memops", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 4},
        {"is managed", CU_POINTER_ATTRIBUTE_IS_MANAGED, 4},
        {"device ordinal", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 4},
        {"is capable of legacy IPC", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 4},
        {"range start", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 8},
        {"range size", CU_POINTER_ATTRIBUTE_RANGE_SIZE, 8},
        {"mapped", CU_POINTER_ATTRIBUTE_MAPPED, 4},
        {"allowed handle types", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 8},
        {"access flags", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, 4},
        {"pool", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 8},
        {"mapping start", CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, 8},
        {"mapping size", CU_POINTER_ATTRIBUTE_MAPPING_SIZE, 8},
    };
    for (const auto &attribute : attributes) {
        uint64_t value = 0;
        const CUresult code = cuPointerGetAttribute(&value, attribute.which, address);
        if (code != 0) {
            std::printf("  %-34s %s\n", attribute.name, name(code));
        } else {
            std::printf("  %-34s %#llx\n", attribute.name, static_cast<unsigned long long>(value));
        }
    }
    CUdeviceptr pointer = 0, base = 0;
    size_t size = 0;
    unsigned flags = 0;
    CUresult code = cuMemHostGetDevicePointer_v2(&pointer, host(address), 0);
    std::printf("  cuMemHostGetDevicePointer          %s, %#llx\n", name(code), pointer);
    code = cuMemHostGetFlags(&flags, host(address));
    std::printf("  cuMemHostGetFlags                  %s, %u\n", name(code), flags);
    code = cuMemGetAddressRange_v2(&base, &size, address);
    std::printf("  cuMemGetAddressRange               %s, %#llx, %zu\n", name(code), base, size);
}

// The mean times of a pair, and the time of the first one.
static void time_pairs(const Source &source, size_t size) {
    const int pairs = size < (16 << 20) ? 200 : 5;
    double allocating = 0, freeing = 0, first = 0;
    for (int pair = 0; pair < pairs + 1; pair++) {
        CUdeviceptr address = 0;
        auto begin = Clock::now();
        CUresult code = source.allocate(&address, size);
        const double allocated = microseconds(begin);
        begin = Clock::now();
        if (code == 0) code = source.free(address);
        const double freed = microseconds(begin);
        if (code != 0) {
            std::printf("  %-44s %9zu KiB: %s\n", source.name, size >> 10, name(code));
            return;
        }
        // What was freed in stream order returns to the system here.
        CU(cuStreamSynchronize(stream));
        if (pair == 0) {
            first = allocated;
        } else {
            allocating += allocated, freeing += freed;
        }
    }
    std::printf("  %-44s %9zu KiB: %9.1f + %9.1f us; first allocation %9.1f us\n", source.name, size >> 10,
                allocating / pairs, freeing / pairs, first);
}

static size_t free_memory() {
    size_t free = 0, total = 0;
    CU(cuMemGetInfo_v2(&free, &total));
    return free;
}

static void what_returns() {
    std::printf("\nFree device memory in MiB around 256 MiB of cuMemAlloc:\n");
    const size_t before = free_memory();
    CUdeviceptr address;
    CU(cuMemAlloc_v2(&address, 256 << 20));
    const size_t allocated = free_memory();
    block();
    const CUresult code = cuMemFreeAsync(address, blocked);
    const size_t queued = free_memory();
    release();
    const size_t synchronized = free_memory();
    CU(cuCtxSynchronize());
    std::printf("  before %zu, allocated %zu, free queued (%s) %zu, stream synchronized %zu, context too %zu\n",
                before >> 20, allocated >> 20, name(code), queued >> 20, synchronized >> 20, free_memory() >> 20);

    // All memory but 64 MiB, twice: the second allocation needs what the first one's queued free returns.
    const size_t most = free_memory() - (size_t{64} << 20);
    CU(cuMemAlloc_v2(&address, most));
    CU(cuMemFreeAsync(address, stream));
    const auto begin = Clock::now();
    CUresult again = cuMemAlloc_v2(&address, most);
    std::printf("  almost all memory, freed in stream order and allocated again at once: %s (%.0f us)", name(again),
                microseconds(begin));
    if (again != 0) {
        CU(cuStreamSynchronize(stream));
        again = cuMemAlloc_v2(&address, most);
        std::printf("; after a synchronization: %s", name(again));
    }
    std::printf("\n");
    if (again == 0) CU(cuMemFree_v2(address));
}

int main() {
    CUcontext context;
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
    for (CUstream *made : {&stream, &service, &blocked}) CU(cuStreamCreate(made, CU_STREAM_NON_BLOCKING));
    int version = 0;
    CU(cuDriverGetVersion(&version));
    std::printf("driver %d\n", version);

    const CUmemoryPool pool = host_pool(CU_MEM_LOCATION_TYPE_HOST, 0);
    const CUmemoryPool keeping = host_pool(CU_MEM_LOCATION_TYPE_HOST, ~uint64_t{0});
    const auto from = [](CUmemoryPool pool) {
        return [pool](CUdeviceptr *address, size_t size) {
            return cuMemAllocFromPoolAsync(address, size, pool, service);
        };
    };
    const auto in_order = [](CUdeviceptr address) { return cuMemFreeAsync(address, stream); };
    const auto free_host = [](CUdeviceptr address) { return cuMemFreeHost(host(address)); };
    const auto unmap = [](size_t size) {
        return [size](CUdeviceptr address) { return end_virtual_memory(address, size); };
    };

    // The start of an allocation and an address inside of it.
    const Source described[] = {
        {"cuMemAlloc", cuMemAlloc_v2, cuMemFree_v2},
        {"cuMemHostAlloc", host_alloc, free_host},
        {"a host pool, first block", from(pool), nullptr},
        {"a host pool, second block", from(pool), in_order},
        {"virtual memory of the host", virtual_memory, unmap(1 << 20)},
    };
    CUdeviceptr first = 0;
    for (const Source &source : described) {
        CUdeviceptr address = 0;
        const CUresult code = source.allocate(&address, 1 << 20);
        if (code != 0) {
            std::printf("%s: %s\n", source.name, name(code));
            continue;
        }
        describe(source.name, address);
        describe("  1000 bytes later", address + 1000);
        if (source.free) {
            CU(source.free(address));
        } else {
            first = address;
        }
    }

    std::printf("\nMean time of an allocation and a free, with a synchronization between the pairs:\n");
    for (const size_t size : SIZES) {
        const Source timed[] = {
            {"cuMemAlloc + cuMemFree", cuMemAlloc_v2, cuMemFree_v2},
            {"cuMemAlloc + cuMemFreeAsync", cuMemAlloc_v2, in_order},
            {"cuMemHostAlloc + cuMemFreeHost", host_alloc, free_host},
            {"a host pool that keeps nothing", from(pool), in_order},
            {"a host pool that keeps all", from(keeping), in_order},
            {"virtual memory of the host", virtual_memory, unmap(size)},
        };
        for (const Source &source : timed) time_pairs(source, size);
    }

    std::printf("\nWhile a host function blocks the stream that frees:\n");
    for (const size_t size : SIZES) {
        CUdeviceptr address = 0;
        const std::string of = " of " + std::to_string(size >> 10) + " KiB";
        CU(cuMemAlloc_v2(&address, size));
        block();
        beside_a_block(("cuMemFreeAsync, cuMemAlloc" + of).c_str(), [&] { return cuMemFreeAsync(address, blocked); });
        if (pool == nullptr) continue;
        CU(cuMemAllocFromPoolAsync(&address, size, pool, service));
        CU(cuStreamSynchronize(service));
        block();
        beside_a_block(("cuMemFreeAsync, a host pool" + of).c_str(), [&] { return cuMemFreeAsync(address, blocked); });
        block();
        beside_a_block(("allocation from a host pool, with a use by the CPU" + of).c_str(), [&] {
            const CUresult code = cuMemAllocFromPoolAsync(&address, size, pool, service);
            if (code == 0) std::memset(host(address), 1, size);
            return code;
        });
        // Memory whose free is queued must not be handed out, and must not make the other stream wait.
        block();
        const CUdeviceptr freed = address;
        CU(cuMemFreeAsync(address, blocked));
        beside_a_block(("allocation while a free is queued" + of).c_str(), [&] {
            CUresult code = cuMemAllocFromPoolAsync(&address, size, pool, service);
            const CUresult idle = cuStreamQuery(service);
            const char *which = address == freed ? "THE SAME BLOCK" : "another block";
            std::printf("    %s; the service stream is %s\n", which, name(idle));
            return code;
        });
        CU(cuMemFreeAsync(address, service));
        CU(cuStreamSynchronize(service));
    }

    what_returns();

    std::printf("\nThe pools' memory after all frees, in KiB: ");
    if (first != 0) CU(cuMemFreeAsync(first, stream));
    CU(cuCtxSynchronize());
    for (const CUmemoryPool which : {pool, keeping}) {
        uint64_t reserved = 0, used = 0;
        if (which == nullptr) continue;
        CU(cuMemPoolGetAttribute(which, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
        CU(cuMemPoolGetAttribute(which, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
        std::printf("reserved %llu, used %llu; ", static_cast<unsigned long long>(reserved >> 10),
                    static_cast<unsigned long long>(used >> 10));
    }
    std::printf("\n");
}
