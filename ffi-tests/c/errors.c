/* Tests versions, status codes and error messages of libcudamem. */
#include "cudamem.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);            \
            return 1;                                                          \
        }                                                                      \
    } while (0)

static void *other_thread(void *unused)
{
    (void)unused;
    /* Each thread has its own last error. */
    return cudamem_last_error_message() == NULL ? NULL : (void *)1;
}

int main(void)
{
    CHECK(cudamem_version_number() == CUDAMEM_VERSION_NUMBER);
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", CUDAMEM_VERSION_MAJOR, CUDAMEM_VERSION_MINOR, CUDAMEM_VERSION_PATCH);
    CHECK(strcmp(cudamem_version(), version) == 0);
    CHECK(strcmp(cudamem_status_name(CUDAMEM_ERROR_LOAD), "CUDAMEM_ERROR_LOAD") == 0);
    CHECK(strcmp(cudamem_status_name(CUDAMEM_ERROR_PANIC), "CUDAMEM_ERROR_PANIC") == 0);
    CHECK(strcmp(cudamem_status_name(12345), "CUDAMEM_ERROR_UNKNOWN") == 0);
    CHECK(cudamem_last_error_message() == NULL);

    CHECK(cudamem_device_get_count(NULL) == CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(cudamem_last_error_message(), "count is NULL") != NULL);

    uint32_t release = 7;
    CHECK(cudamem_load(NULL, &release) == CUDAMEM_ERROR_LOAD);
    CHECK(release == 7);
    puts(cudamem_last_error_message());

    pthread_t thread;
    void *answer = NULL;
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0);
    CHECK(pthread_join(thread, &answer) == 0);
    CHECK(answer == NULL);
    return 0;
}
