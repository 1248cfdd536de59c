// Attempts on the fence itself, on our own processes and on the broker.
#include "probe.h"
#include <grp.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>

// namespaces: every way to a new user namespace, and a few that need none.
static int namespaces(char **a) {
    (void)a;
    struct clone_args three = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    report("unshare_user", unshare(CLONE_NEWUSER));
    report("unshare_mount", unshare(CLONE_NEWNS));
    report("unshare_net", unshare(CLONE_NEWNET));
    report("unshare_user_net", unshare(CLONE_NEWUSER | CLONE_NEWNET));
    long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (!child)
        _exit(0);
    report("clone_user", child);
    child = syscall(SYS_clone3, &three, sizeof three);
    if (!child)
        _exit(0);
    report("clone3_user", child);
    report("setns", setns(open("/proc/1/ns/mnt", O_RDONLY), 0));
    return 0;
}

// mounts: the old interface and the new one.
static int mounts(char **a) {
    (void)a;
    report("mount_tmpfs", mount("tmpfs", "/tmp", "tmpfs", 0, 0));
    report("mount_bind", mount("/usr", "/tmp", 0, MS_BIND, 0));
    report("remount", mount(0, "/usr", 0, MS_REMOUNT | MS_BIND, 0));
    report("umount", umount2("/proc", MNT_DETACH));
    report("pivot_root", syscall(SYS_pivot_root, ".", "."));
    report("chroot", chroot("/tmp"));
    report("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
    report("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/usr", 1));
    report("move_mount", syscall(SYS_move_mount, AT_FDCWD, "/usr", AT_FDCWD, "/tmp", 0));
    report("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, "/usr", 0, (uint64_t[4]){0}, 32));
    return 0;
}

// kernel: what no agent needs.
static int kernel(char **a) {
    (void)a;
    char ring[256] = {0};
    report("io_uring", syscall(SYS_io_uring_setup, 8, ring));
    report("bpf", syscall(SYS_bpf, 0, ring, 48));
    report("keyctl", syscall(SYS_keyctl, 0, -3, 0));
    report("add_key", syscall(SYS_add_key, "user", "x", "y", 1, -3));
    report("userfaultfd", syscall(SYS_userfaultfd, 0));
    report("perf", syscall(SYS_perf_event_open, ring, 0, -1, -1, 0));
    report("module", syscall(SYS_init_module, ring, 1, ""));
    report("kexec", syscall(SYS_kexec_load, 0, 0, 0, 0));
    report("handle", syscall(SYS_open_by_handle_at, AT_FDCWD, ring, 0));
    report("hostname", sethostname("x", 1));
    report("clock", clock_settime(CLOCK_REALTIME, &(struct timespec){1, 0}));
    report("swapon", syscall(SYS_swapon, "/dev/null", 0));
    report("syslog", syscall(SYS_syslog, 3, ring, 100));
    report("quotactl", syscall(SYS_quotactl, 0, "/dev/vda", 0, ring));
    return 0;
}

// int80: connect() by the 32-bit table. Never returns alive where the filter does its work.
static int int80(char **a) {
    (void)a;
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory"); // getpid of the i386 table
    printf("int80=%d\n", result);
    return 0;
}

static int x32(char **a) {
    (void)a;
    errno = 0;
    long result = syscall(0x40000000L | SYS_getpid);
    return report("x32", result);
}

// strangers PID: everything that one process can do to another.
static int strangers(char **a) {
    pid_t it = atoi(a[0]);
    char path[64], byte;
    struct iovec mine = {&byte, 1}, its = {(void *)0x400000, 1};
    struct rlimit tight = {3, 3};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    report("prlimit", prlimit(it, RLIMIT_NOFILE, &tight, 0));
    report("setpriority", setpriority(PRIO_PROCESS, it, 19));
    report("sched_setaffinity", sched_setaffinity(it, sizeof one, &one));
    report("sched_setscheduler", sched_setscheduler(it, SCHED_IDLE, &(struct sched_param){0}));
    report("ioprio_set", syscall(SYS_ioprio_set, 1, it, 3 << 13));
    report("kcmp", syscall(SYS_kcmp, it, getpid(), 0, 0, 0));
    report("migrate_pages", syscall(SYS_migrate_pages, it, 64, (uint64_t[]){1}, (uint64_t[]){1}));
    report("vm_read", process_vm_readv(it, &mine, 1, &its, 1, 0));
    report("vm_write", process_vm_writev(it, &mine, 1, &its, 1, 0));
    report("ptrace_seize", ptrace(PTRACE_SEIZE, it, 0, 0));
    report("ptrace_attach", ptrace(PTRACE_ATTACH, it, 0, 0));
    int pidfd = syscall(SYS_pidfd_open, it, 0), stolen = -1;
    for (int fd = 0; fd < 64 && stolen < 0; fd++)
        stolen = syscall(SYS_pidfd_getfd, pidfd, fd, 0);
    report("pidfd_getfd", stolen);
    snprintf(path, sizeof path, "/proc/%d/mem", it);
    report("mem", open(path, O_RDWR));
    snprintf(path, sizeof path, "/proc/%d/environ", it);
    int environment = open(path, O_RDONLY);
    report("environ", environment < 0 ? -1 : read(environment, &byte, 1) == 1 ? 0 : (errno = EACCES, -1));
    snprintf(path, sizeof path, "/proc/%d/root/etc", it);
    report("root", open(path, O_RDONLY));
    int seen = -1;
    for (int fd = 0; fd < 64 && seen < 0; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", it, fd);
        seen = readlink(path, &byte, 1);
    }
    report("fd", seen);
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", it);
    int oom = open(path, O_WRONLY);
    report("oom", oom < 0 ? -1 : write(oom, "1000", 4));
    return 0;
}

// kill PID SIGNAL
static int send_signal(char **a) { return report("kill", kill(atoi(a[0]), atoi(a[1]))); }

// identity: what a program could gain.
static int identity(char **a) {
    (void)a;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    uid_t r, e, s;
    getresuid(&r, &e, &s);
    printf("uid=%u %u %u\n", r, e, s);
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "Cap", 3) || !strncmp(line, "NoNew", 5) || !strncmp(line, "Seccomp:", 8) || !strncmp(line, "Sig", 3))
            fputs(line, stdout);
    report("setuid", setuid(0));
    report("setgroups", setgroups(0, 0));
    return 0;
}

static volatile int racing = 1;
static struct sockaddr_in target;
static in_port_t ports[2];

static void *flip(void *nothing) {
    while (racing) {
        target.sin_port = ports[0];
        __asm__ volatile("" ::: "memory");
        target.sin_port = ports[1];
        __asm__ volatile("" ::: "memory");
    }
    return nothing;
}

// race IP ALLOWED DENIED TRIES: one thread connects while the other rewrites the port.
static int race(char **a) {
    struct place to = place(a[0], a[1]);
    pthread_t thread;
    int tries = atoi(a[3]), passed = 0, refused = 0;
    target = *(struct sockaddr_in *)&to.address;
    ports[0] = htons(atoi(a[1]));
    ports[1] = htons(atoi(a[2]));
    pthread_create(&thread, 0, flip, 0);
    for (int i = 0; i < tries; i++) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        struct linger abort_at_close = {1, 0};
        setsockopt(s, SOL_SOCKET, SO_LINGER, &abort_at_close, sizeof abort_at_close);
        connect(s, (void *)&target, sizeof target) ? refused++ : passed++;
        close(s);
    }
    racing = 0;
    pthread_join(thread, 0);
    printf("tries=%d\npassed=%d\nrefused=%d\n", tries, passed, refused);
    return 0;
}

static int dissolve(int s) { return connect(s, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)); }

// bequeath IP PORT OTHER PROGRAM: fills a connection that nobody reads from, and leaves its socket to PROGRAM, which is to be its heir.
static int bequeath(char **a) {
    struct place to = place(a[0], a[1]);
    int s = socket(to.address.ss_family, SOCK_STREAM, 0);
    char number[16], block[1 << 16] = {0};
    report("connect", connect(s, (void *)&to.address, to.length));
    fcntl(s, F_SETFL, O_NONBLOCK);
    struct pollfd room = {.fd = s, .events = POLLOUT};
    while (poll(&room, 1, 500) == 1 && write(s, block, sizeof block) > 0)
        ;
    fcntl(s, F_SETFL, 0);
    snprintf(number, sizeof number, "%d", s);
    fflush(stdout);
    execl(a[3], a[3], "inherit", a[0], a[2], number, (char *)0);
    return report("exec", -1);
}

// inherit IP PORT SOCKET: disconnects a socket that another program has left, and connects it.
static int inherit(char **a) {
    struct place to = place(a[0], a[1]);
    report("dissolve", dissolve(atoi(a[2])));
    return report("inherited", connect(atoi(a[2]), (void *)&to.address, to.length));
}

// reconnect IP PORT OTHER TRIES: connects, disconnects and connects the same socket to another port.
static int reconnect(char **a) {
    struct place first = place(a[0], a[1]), second = place(a[0], a[2]);
    int tries = atoi(a[3]), denied = 0;
    for (int i = 0; i < tries; i++) {
        int s = stream_socket(&first);
        connect(s, (void *)&first.address, first.length);
        dissolve(s);
        denied += connect(s, (void *)&second.address, second.length) && errno == EACCES;
        close(s);
    }
    printf("denied=%d\n", denied);
    return 0;
}

// abort IP PORT COUNT: connections that are reset as soon as they are made.
static int abort_at_once(char **a) {
    struct place to = place(a[0], a[1]);
    int count = atoi(a[2]), made = 0;
    for (int i = 0; i < count; i++) {
        int s = stream_socket(&to);
        struct linger abort_at_close = {1, 0};
        setsockopt(s, SOL_SOCKET, SO_LINGER, &abort_at_close, sizeof abort_at_close);
        made += !connect(s, (void *)&to.address, to.length);
        close(s);
    }
    printf("made=%d\n", made);
    return 0;
}

static struct place all_to;
static pthread_barrier_t together;
static int per_thread;

static void *caller(void *nothing) {
    long good = 0;
    pthread_barrier_wait(&together);
    for (int i = 0; i < per_thread; i++) {
        char said[8] = "";
        int s = stream_socket(&all_to);
        struct timeval limit = {.tv_sec = 30};
        setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        if (!connect(s, (void *)&all_to.address, all_to.length) && write(s, "hello", 5) == 5 && recv(s, said, 5, MSG_WAITALL) == 5 && !memcmp(said, "hello", 5))
            good++;
        close(s);
    }
    (void)nothing;
    return (void *)good;
}

// crowd IP PORT THREADS EACH: threads that connect at once to an echo server.
static int crowd(char **a) {
    int count = atoi(a[2]);
    long good = 0;
    pthread_t *threads = calloc(count, sizeof *threads);
    all_to = place(a[0], a[1]);
    per_thread = atoi(a[3]);
    pthread_barrier_init(&together, 0, count);
    for (int i = 0; i < count; i++)
        if (pthread_create(threads + i, 0, caller, 0))
            die("pthread_create");
    for (int i = 0; i < count; i++) {
        void *one;
        pthread_join(threads[i], &one);
        good += (long)one;
    }
    printf("good=%ld\n", good);
    return 0;
}

static void nothing(int signal) { (void)signal; }

// interrupted IP PORT TRIES MS RESTART: connects under a timer whose handler does or does not restart calls.
static int interrupted(char **a) {
    struct place to = place(a[0], a[1]);
    struct sigaction act = {.sa_handler = nothing, .sa_flags = atoi(a[4]) ? SA_RESTART : 0};
    struct itimerval every = {{0, atoi(a[3]) * 1000}, {0, atoi(a[3]) * 1000}};
    int good = 0, broken = 0, other = 0, tries = atoi(a[2]);
    sigaction(SIGALRM, &act, 0);
    setitimer(ITIMER_REAL, &every, 0);
    for (int i = 0; i < tries; i++) {
        int s = stream_socket(&to);
        if (!connect(s, (void *)&to.address, to.length))
            good++;
        else if (errno == EINTR)
            broken++;
        else
            other++;
        if (close(s) && errno != EINTR)
            other++;
    }
    printf("good=%d\ninterrupted=%d\nother=%d\n", good, broken, other);
    return 0;
}

static void handle(int signal) {
    static volatile sig_atomic_t times;
    (void)signal;
    if (++times == 3 && write(1, "handled\n", 8) < 0)
        _exit(1);
}

// alarmed IP PORT RESTART LIVES: a connect under a timer, by a program that waits for its socket if a signal ends the call. The
// socket takes packets that have so many lives left.
static int alarmed(char **a) {
    struct place to = place(a[0], a[1]);
    struct sigaction act = {.sa_handler = handle, .sa_flags = atoi(a[2]) ? SA_RESTART : 0};
    struct itimerval every = {{0, 50000}, {0, 50000}};
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer, width = sizeof(int);
    int s = stream_socket(&to), error = 0, lives = atoi(a[3]);
    char answer[6] = "";
    setsockopt(s, IPPROTO_IP, IP_MINTTL, &lives, sizeof lives);
    sigaction(SIGALRM, &act, 0);
    setitimer(ITIMER_REAL, &every, 0);
    report("connect", connect(s, (void *)&to.address, to.length));
    struct pollfd one = {s, POLLOUT, 0};
    printf("writable=%d\n", poll(&one, 1, 0));
    report("peer", getpeername(s, (void *)&peer, &size));
    fflush(stdout);
    while (poll(&one, 1, -1) < 0 && errno == EINTR)
        ;
    getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &width);
    errno = error;
    report("outcome", error ? -1 : 0);
    while (!error && write(s, "hello", 5) < 0 && errno == EINTR)
        ;
    while (!error && read(s, answer, 5) < 0 && errno == EINTR)
        ;
    printf("answer=%s\n", answer);
    return 0;
}

// victims IP PORT COUNT: children that are killed while their connect is pending.
static int victims(char **a) {
    struct place to = place(a[0], a[1]);
    int count = atoi(a[2]);
    unsigned seed = 7;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (!child) {
            connect(stream_socket(&to), (void *)&to.address, to.length);
            _exit(0);
        }
        usleep(rand_r(&seed) % 2000);
        kill(child, SIGKILL);
        waitpid(child, 0, 0);
    }
    printf("victims=%d\n", count);
    return 0;
}

// descriptors: every open descriptor but the listing's own.
static int descriptors(char **a) {
    (void)a;
    for (int fd = 0; fd < 4096; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            printf("%d ", fd);
    printf("\n");
    return 0;
}

// deny CALL:ERRNO,… PROGRAM ARGUMENT…: the program on a host that answers these calls with these numbers.
static int deny(char **a) {
    struct sock_filter filter[64] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short length = 1;
    for (char *call = a[0]; call && length < 60; call = strchr(call, ',')) {
        call += *call == ',';
        unsigned number = atoi(call), answer = atoi(strchr(call, ':') + 1);
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | answer);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        die("seccomp");
    execv(a[1], a + 1);
    die("execv");
    return 1;
}

const struct command attack_commands[] = {
    {"namespaces", 0, namespaces}, {"mounts", 0, mounts},       {"kernel", 0, kernel},           {"int80", 0, int80},
    {"x32", 0, x32},               {"strangers", 1, strangers}, {"kill", 2, send_signal},        {"identity", 0, identity},
    {"race", 4, race},             {"crowd", 4, crowd},         {"interrupted", 5, interrupted}, {"victims", 3, victims},
    {"alarmed", 4, alarmed},
    {"descriptors", 0, descriptors}, {"bequeath", 4, bequeath}, {"inherit", 3, inherit}, {"reconnect", 4, reconnect},
    {"deny", 2, deny},             {"abort", 3, abort_at_once}, {0},
};
