/* Lets every sync of one process fail while a shared file says so, as a broken disk does, and
 * records how long the append-only file was at its last good sync: what was written later may be
 * lost. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct state {
    int64_t fails, synced_bytes;
};

static volatile struct state *state;

__attribute__((constructor)) static void open_state(void) {
    const char *path = getenv("RINGFENCE_SYNC_STATE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *page = fd < 0 ? MAP_FAILED
                        : mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) state = page;
    if (fd >= 0) close(fd);
}

static void record(int fd) {
    char link[64], path[PATH_MAX];
    struct stat now;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path);
    static const char end[] = ".incr.aof";
    size_t suffix = sizeof end - 1;
    if (length < (ssize_t)suffix || memcmp(path + length - suffix, end, suffix) != 0) return;
    if (fstat(fd, &now) == 0) state->synced_bytes = now.st_size;
}

static int sync_by(long call, int fd) {
    if (state && state->fails) {
        errno = EIO;
        return -1;
    }
    int result = (int)syscall(call, fd);
    if (result == 0 && state) record(fd);
    return result;
}

int fsync(int fd) {
    return sync_by(SYS_fsync, fd);
}

int fdatasync(int fd) {
    return sync_by(SYS_fdatasync, fd);
}
