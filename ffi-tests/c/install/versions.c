/* Uses two releases of the library in one process. `old_part` and `new_part` are each linked with one release. Each
 * release must refuse the other's handles. The two arguments are the files of the parts, unless LINKED is defined. */
#define PART old_part
#include "part.h"
#undef PART
const part *new_part(void);

#include <dlfcn.h>
#include <stdio.h>

#define EXPECT(condition)                                                                      \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                            \
            fprintf(stderr, "old: %s\nnew: %s\n", old->message() ? old->message() : "no error", \
                    new->message() ? new->message() : "no error");                             \
            return 1;                                                                          \
        }                                                                                      \
    } while (0)

#ifndef LINKED
static const part *load(const char *file, const char *name)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return NULL;
    }
    const part *(*get)(void);
    *(void **)&get = dlsym(library, name);
    return get == NULL ? NULL : get();
}
#endif

int main(int count, char **arguments)
{
    const part *old, *new;
#ifdef LINKED
    (void)count, (void)arguments;
    old = old_part();
    new = new_part();
#else
    if (count != 3) {
        return 2;
    }
    old = load(arguments[1], "old_part");
    new = load(arguments[2], "new_part");
#endif
    if (old == NULL || new == NULL) {
        return 1;
    }
    EXPECT(old->version_number() == CUDAMEM_VERSION_NUMBER);
    EXPECT(new->version_number() == CUDAMEM_VERSION_NUMBER + 1000);

    cudamem_buffer of_old, of_new;
    unsigned char value = 0;
    EXPECT(old->open(&of_old) == CUDAMEM_SUCCESS);
    EXPECT(new->open(&of_new) == CUDAMEM_SUCCESS);
    EXPECT(old->write(of_old, 11) == CUDAMEM_SUCCESS);
    EXPECT(new->write(of_new, 22) == CUDAMEM_SUCCESS);
    EXPECT(old->read(of_old, &value) == CUDAMEM_SUCCESS && value == 11);
    EXPECT(new->read(of_new, &value) == CUDAMEM_SUCCESS && value == 22);

    /* Each release has its own messages and accepts only its own handles. */
    EXPECT(old->message() == NULL && new->message() == NULL);
    EXPECT(old->write(of_new, 33) == CUDAMEM_ERROR_INVALID_HANDLE);
    EXPECT(old->message() != NULL && new->message() == NULL);
    EXPECT(new->destroy(of_old) == CUDAMEM_ERROR_INVALID_HANDLE);
    EXPECT(old->read(of_old, &value) == CUDAMEM_SUCCESS && value == 11);

    EXPECT(old->destroy(of_old) == CUDAMEM_SUCCESS);
    EXPECT(new->write(of_new, 44) == CUDAMEM_SUCCESS);
    EXPECT(new->read(of_new, &value) == CUDAMEM_SUCCESS && value == 44);
    EXPECT(new->destroy(of_new) == CUDAMEM_SUCCESS);
    puts("everything as expected");
    return 0;
}
