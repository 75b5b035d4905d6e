/* Loaded before the C library: lets a test move the wall clock of one process, and fail its fsync,
 * also the one that the kernel does by itself (Linux AIO).
 *
 * The file that FAULTY_LIBC names is mapped; the test writes the orders, the process the counts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct orders {
    int64_t offset_ns;      /* added to the wall clock */
    int64_t drift_ppm;      /* added for each second since `since_ns`, in millionths */
    int64_t since_ns;       /* on the monotonic clock */
    int64_t fsync_errno;    /* 0: fsync works */
    int64_t clock_reads;    /* how often the wall clock was read */
    int64_t fsyncs_failed;
};

static struct orders nothing, *orders = &nothing;
static long (*call)(long number, ...);

__attribute__((constructor)) static void map_orders(void) {
    call = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    const char *path = getenv("FAULTY_LIBC");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(0, sizeof *orders, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) orders = mapped;
    close(file);
}

static int64_t in_ns(struct timespec t) { return t.tv_sec * 1000000000LL + t.tv_nsec; }

int clock_gettime(clockid_t clock, struct timespec *t) {
    int failed = (int)call(SYS_clock_gettime, clock, t);
    if (failed || clock != CLOCK_REALTIME) return failed;
    struct timespec monotonic;
    call(SYS_clock_gettime, CLOCK_MONOTONIC, &monotonic);
    int64_t past_us = (in_ns(monotonic) - orders->since_ns) / 1000;
    int64_t moved = orders->offset_ns + past_us * orders->drift_ppm / 1000;
    int64_t now = in_ns(*t) + moved;
    t->tv_sec = now / 1000000000LL;
    t->tv_nsec = now % 1000000000LL;
    __atomic_fetch_add(&orders->clock_reads, 1, __ATOMIC_RELAXED);
    return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}

static int synced(long number, int file) {
    if (!orders->fsync_errno) return (int)call(number, file);
    __atomic_fetch_add(&orders->fsyncs_failed, 1, __ATOMIC_RELAXED);
    errno = (int)orders->fsync_errno;
    return -1;
}

int fsync(int file) { return synced(SYS_fsync, file); }
int fdatasync(int file) { return synced(SYS_fdatasync, file); }

static void fail_fsyncs(struct io_event *events, long count) {
    for (long i = 0; i < count; i++) {
        int operation = ((struct iocb *)(uintptr_t)events[i].obj)->aio_lio_opcode;
        if (operation != IOCB_CMD_FDSYNC && operation != IOCB_CMD_FSYNC) continue;
        events[i].res = -orders->fsync_errno;
        __atomic_fetch_add(&orders->fsyncs_failed, 1, __ATOMIC_RELAXED);
    }
}

/* What the C library has no function for. */
long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    long result = call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_io_getevents && orders->fsync_errno)
        fail_fsyncs((struct io_event *)a[3], result);
    return result;
}
