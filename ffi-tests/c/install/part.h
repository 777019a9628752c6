/* A part of a program that was linked with a release of the library of its own. */
#include <cudamem.h>

typedef struct {
    /* What it calls. */
    uint32_t (*version_number)(void);
    cudamem_status (*open)(cudamem_buffer *buffer);
    cudamem_status (*write)(cudamem_buffer buffer, unsigned char value);
    cudamem_status (*read)(cudamem_buffer buffer, unsigned char *value);
    cudamem_status (*destroy)(cudamem_buffer buffer);
    const char *(*message)(void);
} part;

const part *PART(void);
