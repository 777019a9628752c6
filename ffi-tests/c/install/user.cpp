// Uses only installed files. Parts of it are examples in the documentation.
#include <cudamem.hpp>

#include <cstdio>
#include <vector>

static bool use_pool()
{
    //! [pool]
    cudamem::context context(0);
    cudamem::stream stream(context);
    cudamem::pool pool(cudamem::resource::device(context));
    cudamem::buffer buffer(pool, 1024, stream);

    const std::vector<unsigned char> sent(1024, 7);
    std::vector<unsigned char> received(1024);
    buffer.write(0, sent.data(), sent.size());
    buffer.read(0, received.data(), received.size());
    //! [pool]
    return received == sent;
}

static bool use_values()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    const cudamem::pool pool(cudamem::resource::device(context));
    //! [values]
    cudamem::typed_buffer<float> samples(pool, 1000, stream);
    samples.fill(1.5f);
    samples.write(10, std::vector<float>{2, 3});
    samples.resize(pool, 2000, stream);
    const std::vector<float> seen = samples.to_vector();
    const cudamem::buffer bytes = samples.release();
    //! [values]
    return seen.size() == 2000 && seen[9] == 1.5f && seen[11] == 3 && bytes.size() == 8000;
}

static bool is_thrown()
{
    //! [error]
    try {
        cudamem::context context(-1);
    } catch (const cudamem::error &error) {
        std::puts(error.what());
        return true;
    }
    //! [error]
    return false;
}

int main()
{
    if (!use_pool() || !use_values() || !is_thrown()) {
        return 1;
    }
    std::puts("everything as expected");
    return 0;
}
