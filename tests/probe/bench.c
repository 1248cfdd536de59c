// What is measured from inside: the same program runs outside for the native figure.
#include "probe.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS // headers before Linux 6.6
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP 1UL
#endif

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// bench-connect IP PORT COUNT: connect + close, microseconds.
static int bench_connect(char **a) {
    struct place to = place(a[0], a[1]);
    int count = atoi(a[2]);
    double *took = calloc(count, sizeof *took);
    for (int i = 0; i < count; i++) {
        double began = now();
        int s = stream_socket(&to);
        if (connect(s, (void *)&to.address, to.length))
            die("connect");
        close(s);
        took[i] = (now() - began) * 1e6;
    }
    qsort(took, count, sizeof *took, by_size);
    printf("p50=%.1f\np99=%.1f\nmax=%.1f\n", took[count / 2], took[count * 99 / 100], took[count - 1]);
    return 0;
}

// bench-brokered IP PORT COUNT: the same below the least broker that knows who calls. It hears of each connect, takes hold of the caller, of its
// socket and of its program's name, and lets it go on; it judges, resolves, dials, carries and records nothing.
static int bench_brokered(char **a) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_connect, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    int told[2], held[2], status;
    if (pipe(told) || pipe(held))
        die("pipe");
    pid_t child = fork();
    if (!child) {
        char byte;
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
        if (listener < 0 || write(told[1], &listener, sizeof listener) != sizeof listener || read(held[0], &byte, 1) != 1)
            die("install the filter");
        close(listener);
        status = bench_connect(a);
        fflush(stdout);
        _exit(status);
    }
    int number, process = syscall(SYS_pidfd_open, child, 0);
    if (read(told[0], &number, sizeof number) != sizeof number)
        die("hear of the listener");
    int listener = syscall(SYS_pidfd_getfd, process, number, 0);
    // Where the kernel has no synchronous wake-up, it goes on without.
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
    if (listener < 0 || write(held[1], "", 1) != 1)
        die("take the listener");
    for (int left = atoi(a[2]); left; left--) {
        char link[64], path[256];
        struct seccomp_notif call = {0};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
            die("hear of a call");
        int caller = syscall(SYS_pidfd_open, call.pid, 0), socket = syscall(SYS_pidfd_getfd, caller, (int)call.data.args[0], 0);
        snprintf(link, sizeof link, "/proc/%d/exe", (int)call.pid);
        if (socket < 0 || readlink(link, path, sizeof path) < 0)
            die("look at the caller");
        close(socket);
        close(caller);
        struct seccomp_notif_resp answer = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer))
            die("let a call go on");
    }
    if (waitpid(child, &status, 0) != child || status)
        die("child");
    return 0;
}

// bench-accept IP: says its port, then accepts, reads to the end and closes, one at a time: the least that a server does.
static int bench_accept(char **a) {
    struct place at = place(a[0], "0");
    int s = stream_socket(&at);
    if (bind(s, (void *)&at.address, at.length) || listen(s, SOMAXCONN) || getsockname(s, (void *)&at.address, &at.length))
        die("listen");
    // The port stands at the same place in both families' addresses.
    printf("%d\n", ntohs(((struct sockaddr_in *)&at.address)->sin_port));
    fflush(stdout);
    for (;;) {
        char buffer[4096];
        int near = accept(s, 0, 0);
        if (near < 0)
            die("accept");
        while (read(near, buffer, sizeof buffer) > 0)
            ;
        close(near);
    }
}

// bench-bulk IP PORT CONNECTIONS SECONDS: reads from a server that never stops; gigabytes a second.
static int bench_bulk(char **a) {
    struct place to = place(a[0], a[1]);
    int count = atoi(a[2]), poller = epoll_create1(0);
    double seconds = atof(a[3]), bytes = 0, began;
    static char buffer[1 << 18];
    for (int i = 0; i < count; i++) {
        int s = stream_socket(&to);
        if (connect(s, (void *)&to.address, to.length))
            die("connect");
        fcntl(s, F_SETFL, O_NONBLOCK);
        epoll_ctl(poller, EPOLL_CTL_ADD, s, &(struct epoll_event){.events = EPOLLIN, .data.fd = s});
    }
    for (began = now(); now() - began < seconds;) {
        struct epoll_event ready[64];
        int some = epoll_wait(poller, ready, 64, 1000);
        for (int i = 0; i < some; i++) {
            ssize_t got = read(ready[i].data.fd, buffer, sizeof buffer);
            if (got == 0)
                die("closed");
            if (got > 0)
                bytes += got;
        }
    }
    printf("gbps=%.3f\nbytes=%.0f\n", bytes / (now() - began) / 1e9, bytes);
    return 0;
}

// bench-requests IP PORT CONNECTIONS SECONDS: one byte there and back, on kept connections.
static int bench_requests(char **a) {
    struct place to = place(a[0], a[1]);
    int count = atoi(a[2]), poller = epoll_create1(0), one = 1;
    double seconds = atof(a[3]), began, *sent = calloc(65536, sizeof *sent);
    size_t done = 0, room = 1 << 22;
    double *took = calloc(room, sizeof *took);
    for (int i = 0; i < count; i++) {
        int s = stream_socket(&to);
        if (connect(s, (void *)&to.address, to.length))
            die("connect");
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        epoll_ctl(poller, EPOLL_CTL_ADD, s, &(struct epoll_event){.events = EPOLLIN, .data.fd = s});
        sent[s] = now();
        if (write(s, "x", 1) != 1)
            die("write");
    }
    for (began = now(); now() - began < seconds;) {
        struct epoll_event ready[64];
        int some = epoll_wait(poller, ready, 64, 1000);
        for (int i = 0; i < some; i++) {
            char byte;
            int s = ready[i].data.fd;
            if (read(s, &byte, 1) != 1)
                die("read");
            double at = now();
            if (done < room)
                took[done] = (at - sent[s]) * 1e6;
            done++;
            sent[s] = at;
            if (write(s, "x", 1) != 1)
                die("write");
        }
    }
    size_t kept = done < room ? done : room;
    double elapsed = now() - began;
    qsort(took, kept, sizeof *took, by_size);
    printf("rate=%.0f\np50=%.1f\np99=%.1f\n", done / elapsed, took[kept / 2], took[kept * 99 / 100]);
    return 0;
}

// bench-files DIRECTORY COUNT: create, write, stat, read and remove; milliseconds.
static int bench_files(char **a) {
    int count = atoi(a[1]);
    char path[4096], byte;
    double began = now();
    for (int round = 0; round < count; round++) {
        struct stat known;
        snprintf(path, sizeof path, "%s/f%d", a[0], round % 64);
        int f = open(path, O_RDWR | O_CREAT, 0644);
        if (f < 0 || write(f, "x", 1) != 1 || fstat(f, &known) || lseek(f, 0, SEEK_SET) || read(f, &byte, 1) != 1 || close(f))
            die(path);
        for (int i = 0; i < 4; i++)
            if (stat(path, &known) || (f = open(path, O_RDONLY)) < 0 || read(f, &byte, 1) != 1 || close(f))
                die(path);
        unlink(path);
    }
    printf("ms=%.1f\n", (now() - began) * 1e3);
    return 0;
}

// bench-forks COUNT: fork, exec of a static program, wait; milliseconds.
static int bench_forks(char **a) {
    int count = atoi(a[0]);
    double began = now();
    for (int i = 0; i < count; i++) {
        pid_t child = vfork();
        if (!child) {
            execl("/proc/self/exe", "probe", "nop", (char *)0);
            _exit(127);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            die("child");
    }
    printf("ms=%.1f\n", (now() - began) * 1e3);
    return 0;
}

static int nop(char **a) {
    (void)a;
    return 0;
}

// wait: says that it is ready, and ends with its input.
static int wait_for_input(char **a) {
    char byte;
    (void)a;
    printf("ready\n");
    fflush(stdout);
    return read(0, &byte, 1) < 0;
}

const struct command bench_commands[] = {
    {"bench-connect", 3, bench_connect},   {"bench-brokered", 3, bench_brokered}, {"bench-bulk", 4, bench_bulk},
    {"bench-requests", 4, bench_requests}, {"bench-files", 2, bench_files},       {"bench-forks", 1, bench_forks},
    {"bench-accept", 1, bench_accept},     {"nop", 0, nop},                       {"wait", 0, wait_for_input},
    {0},
};
