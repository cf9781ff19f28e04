/* Lets a program fork that has no unsafe code: the harmless call getppid forks instead. It returns
 * 0 in the child and the child's process id in the parent. */
#include <unistd.h>

pid_t getppid(void) { return fork(); }
