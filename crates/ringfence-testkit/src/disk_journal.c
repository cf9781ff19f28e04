/* Records what one process writes to the files of a folder and what it syncs, so that a test can
 * make every state of the disk that a power cut may leave. Each record is a header and, for a
 * write, its bytes. A sync fails while the file that RINGFENCE_SYNC_FAILS names exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WRITE = 1, TRUNCATE = 2, SYNC = 3 };

struct header {
    uint32_t kind, path_length;
    uint64_t offset, length;
};

static int journal = -1;
static const char *folder, *sync_fails;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("RINGFENCE_DISK_JOURNAL");
    folder = getenv("RINGFENCE_DISK_FOLDER");
    sync_fails = getenv("RINGFENCE_SYNC_FAILS");
    if (path && folder) journal = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* The path of fd, if it is a file of the folder. */
static int path_of(int fd, char path[PATH_MAX]) {
    char link[64];
    if (journal < 0 || fd == journal) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return strncmp(path, folder, strlen(folder)) == 0;
}

static void append(const void *bytes, size_t length) {
    while (length > 0) {
        ssize_t written = syscall(SYS_write, journal, bytes, length);
        if (written <= 0) abort();
        bytes = (const char *)bytes + written;
        length -= written;
    }
}

static void record(uint32_t kind, const char *path, uint64_t offset, uint64_t length,
                   const void *bytes) {
    struct header header = {kind, strlen(path), offset, length};
    int error = errno;
    pthread_mutex_lock(&mutex);
    append(&header, sizeof header);
    append(path, header.path_length);
    if (kind == WRITE) append(bytes, length);
    pthread_mutex_unlock(&mutex);
    errno = error;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    char path[PATH_MAX];
    ssize_t written = syscall(SYS_pwrite64, fd, bytes, length, offset);
    if (written > 0 && path_of(fd, path)) record(WRITE, path, offset, written, bytes);
    return written;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    return pwrite64(fd, bytes, length, offset);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    char path[PATH_MAX];
    ssize_t written = syscall(SYS_write, fd, bytes, length);
    if (written > 0 && path_of(fd, path)) {
        off_t end = lseek(fd, 0, SEEK_CUR);
        if (end >= 0) record(WRITE, path, end - written, written, bytes);
    }
    return written;
}

int ftruncate64(int fd, off64_t length) {
    char path[PATH_MAX];
    int result = syscall(SYS_ftruncate, fd, length);
    if (result == 0 && path_of(fd, path)) record(TRUNCATE, path, 0, length, NULL);
    return result;
}

int ftruncate(int fd, off_t length) {
    return ftruncate64(fd, length);
}

static int sync_by(long call, int fd) {
    char path[PATH_MAX];
    if (path_of(fd, path) && sync_fails && syscall(SYS_access, sync_fails, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    int result = syscall(call, fd);
    if (result == 0 && path_of(fd, path)) record(SYNC, path, 0, 0, NULL);
    return result;
}

int fsync(int fd) {
    return sync_by(SYS_fsync, fd);
}

int fdatasync(int fd) {
    return sync_by(SYS_fdatasync, fd);
}
