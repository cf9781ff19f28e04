/* Moves the wall clock of one process by as many microseconds as a shared file says, and lets the
 * test change that while the process runs. Monotonic clocks stay as they are, as they do when an
 * administrator sets the time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_us;

__attribute__((constructor)) static void open_offset(void) {
    const char *path = getenv("RINGFENCE_WALL_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset_us, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) offset_us = page;
    if (fd >= 0) close(fd);
}

static void shift(struct timespec *time) {
    int64_t us = offset_us ? *offset_us : 0;
    int64_t nanos = time->tv_nsec + us % 1000000 * 1000;
    time->tv_sec += us / 1000000;
    if (nanos < 0) nanos += 1000000000, time->tv_sec -= 1;
    if (nanos >= 1000000000) nanos -= 1000000000, time->tv_sec += 1;
    time->tv_nsec = nanos;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(time);
    return result;
}

int gettimeofday(struct timeval *time, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
