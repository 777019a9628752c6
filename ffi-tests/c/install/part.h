/* A part of a program. Each part is linked with its own release of the library. */
#include <cudamem.h>

typedef struct {
    /* Calls to the part's library. */
    uint32_t (*version_number)(void);
    cudamem_status (*open)(cudamem_buffer *buffer);
    cudamem_status (*write)(cudamem_buffer buffer, unsigned char value);
    cudamem_status (*read)(cudamem_buffer buffer, unsigned char *value);
    cudamem_status (*destroy)(cudamem_buffer buffer);
    const char *(*message)(void);
} part;

const part *PART(void);
