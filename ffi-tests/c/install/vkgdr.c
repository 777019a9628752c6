/* Links with the installed libvkgdr. */
#include <vkgdr.h>

#include <stdio.h>

int main(void)
{
    puts(vkgdr_version());
    return 0;
}
