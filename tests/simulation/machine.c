/*
 * The machine under a simulated cluster: its clock, its sleep and its randomness, in place of the C library's own.
 *
 * Only a process that was given HAPAX_SIMULATION_SEED is such a machine; in every other one these functions ask the kernel.
 * Monotonic time stands still until somebody sleeps, and a sleep is over at once: `std::thread::sleep` is how the simulation
 * moves the clock on. Random bytes are a function of the seed, thread by thread, so that hash seeds, ids and election timeouts
 * are the same in every run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
/* Early, so that what waits for a deadline in the kernel, whose clock goes on, never really waits. */
#define MONOTONIC_BEGAN (10 * SECOND)
#define WALL_BEGAN (INT64_C(1790000000) * SECOND)

/* Nanoseconds that were slept through. */
static _Atomic int64_t slept;
/* 0 not asked yet, 1 real, 2 simulated. */
static _Atomic int kind;
static _Atomic uint64_t seed;
static __thread uint64_t drawn;

static int simulated(void) {
    if (kind == 0) {
        const char *text = getenv("HAPAX_SIMULATION_SEED");
        if (text != NULL) {
            seed = strtoull(text, NULL, 10);
        }
        kind = text != NULL ? 2 : 1;
    }
    return kind == 2;
}

static int shows(clockid_t clock, int64_t *ns) {
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        *ns = WALL_BEGAN + slept;
        return 1;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
        *ns = MONOTONIC_BEGAN + slept;
        return 1;
    default:
        return 0;
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int64_t ns;
    if (!simulated() || !shows(clock, &ns)) {
        return (int)syscall(SYS_clock_gettime, clock, now);
    }
    now->tv_sec = ns / SECOND;
    now->tv_nsec = ns % SECOND;
    return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left) {
    int64_t ns;
    if (!simulated() || !shows(clock, &ns)) {
        return syscall(SYS_clock_nanosleep, clock, flags, wanted, left) == 0 ? 0 : errno;
    }
    int64_t time = (int64_t)wanted->tv_sec * SECOND + wanted->tv_nsec;
    int64_t more = (flags & TIMER_ABSTIME) != 0 ? time - ns : time;
    if (more > 0) {
        slept += more;
    }
    return 0;
}

int nanosleep(const struct timespec *wanted, struct timespec *left) {
    int error = clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
    if (error != 0) {
        errno = error;
        return -1;
    }
    return 0;
}

/* splitmix64 */
static uint64_t draw(void) {
    drawn += 1;
    uint64_t z = (seed ^ UINT64_C(0x5851f42d4c957f2d)) + drawn * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

ssize_t getrandom(void *bytes, size_t length, unsigned int flags) {
    if (!simulated()) {
        return syscall(SYS_getrandom, bytes, length, flags);
    }
    unsigned char *out = bytes;
    for (size_t at = 0; at < length; at += 1) {
        out[at] = (unsigned char)draw();
    }
    return (ssize_t)length;
}
