// One program with many attempts: `probe ATTEMPT ARGUMENT…`. Two words may stand before: `nondumpable` (hide memory first) and `child` (act from a forked child).
#include "probe.h"
#include <sys/prctl.h>

int report(const char *name, long result) {
    if (result < 0)
        printf("%s=%s\n", name, strerrorname_np(errno) ? strerrorname_np(errno) : "E?");
    else
        printf("%s=ok\n", name);
    fflush(stdout);
    return 0;
}

void die(const char *what) {
    fprintf(stderr, "probe: %s: %s\n", what, strerror(errno));
    exit(99);
}

struct place place(const char *ip, const char *port) {
    struct place it = {0};
    struct sockaddr_in *four = (void *)&it.address;
    struct sockaddr_in6 *six = (void *)&it.address;
    if (inet_pton(AF_INET, ip, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(atoi(port));
        it.length = sizeof *four;
    } else if (inet_pton(AF_INET6, ip, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(atoi(port));
        it.length = sizeof *six;
    } else {
        errno = EINVAL;
        die(ip);
    }
    return it;
}

int stream_socket(const struct place *to) {
    int made = socket(to->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0)
        die("socket");
    return made;
}

const char *spell(const struct sockaddr_storage *address, char *text, size_t size) {
    char ip[64] = "?";
    int port = 0;
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const void *)address;
        inet_ntop(AF_INET, &four->sin_addr, ip, sizeof ip);
        port = ntohs(four->sin_port);
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)address;
        inet_ntop(AF_INET6, &six->sin6_addr, ip, sizeof ip);
        port = ntohs(six->sin6_port);
    }
    snprintf(text, size, "%s|%d", ip, port);
    return text;
}

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int in_child(int count, char **arguments);

static int run(int count, char **arguments) {
    const struct command *tables[] = {net_commands, attack_commands, file_commands, bench_commands};
    if (count > 1 && !strcmp(arguments[0], "nondumpable")) {
        if (prctl(PR_SET_DUMPABLE, 0))
            die("prctl");
        return run(count - 1, arguments + 1);
    }
    if (count > 1 && !strcmp(arguments[0], "child"))
        return in_child(count - 1, arguments + 1);
    for (size_t table = 0; count && table < sizeof tables / sizeof *tables; table++)
        for (const struct command *it = tables[table]; it->name; it++)
            if (!strcmp(it->name, arguments[0])) {
                if (count - 1 < it->arguments)
                    break;
                return it->run(arguments + 1);
            }
    fprintf(stderr, "probe: unknown attempt or too few arguments\n");
    return 98;
}

static int in_child(int count, char **arguments) {
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (!child)
        exit(run(count, arguments));
    int status;
    if (waitpid(child, &status, 0) != child)
        die("waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int count, char **arguments) { return run(count - 1, arguments + 1); }
