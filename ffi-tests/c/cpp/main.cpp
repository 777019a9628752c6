// Runs the tests of the C++ header. On the software GPU it also checks for leaks and misuse at the end.
#include "../api/software.h"
#include "test.hpp"

static int drop_errors;

static void on_drop_error(cudamem_status, const char *message, void *)
{
    std::fprintf(stderr, "drop error: %s\n", message);
    drop_errors++;
}

int main(int count, char **arguments)
{
    if (count > 1) {
        const std::pair<const char *, void (*)()> cases[] = {
            {"given_back_twice", give_back_twice},
            {"given_back_with_another_size", give_back_with_another_size},
            {"no_memory", ask_for_too_much},
            {"no_value", take_no_value},
            {"memory_by_address", memory_by_address}};
        for (const auto &[name, run] : cases) {
            if (std::strcmp(arguments[1], name) == 0) {
                run();
            }
        }
        std::puts("went on");
        return 0;
    }
    cudamem::set_drop_error_callback(on_drop_error);
    with_exceptions();
    other_sources();
    without_exceptions();
    views_with_exceptions();
    typed_buffers();
    sharing();
    CHECK(drop_errors == 0);
    cudamem::set_drop_error_callback(nullptr);
    faults();
    check_ledger();
    return 0;
}
