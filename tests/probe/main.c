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

// The first address of a name: `NAME` for IPv4, `NAME/6` for IPv6, `NAME/m` for IPv4 in IPv6's mapped form. Asked of an address that nobody
// configured, without libc: a static program has no resolver, and any server's address has to do. A literal stays what it is.
static const char *resolved(const char *name) {
    static char text[64];
    unsigned char packet[512] = {0, 7, 1, 0, 0, 1}, *end = packet + 12;
    const char *family = strchr(name, '/');
    int kind = family && family[1] == '6' ? 28 : 1, size = kind == 28 ? 16 : 4;
    for (const char *label = name; *label && *label != '/';) {
        size_t length = strcspn(label, "./");
        *end++ = length;
        memcpy(end, label, length);
        end += length;
        label += length + (label[length] == '.');
    }
    *end++ = 0;
    memcpy(end, (unsigned char[]){0, kind, 0, 1}, 4);
    end += 4;
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons(53)};
    inet_pton(AF_INET, "192.0.2.53", &server.sin_addr);
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = 10};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (sendto(s, packet, end - packet, 0, (void *)&server, sizeof server) < 0)
        die("ask for a name");
    ssize_t got = recv(s, packet, sizeof packet, 0);
    close(s);
    if (got < 0)
        die("hear of a name");
    if (packet[3] & 15 || !packet[7]) {
        printf("name=unknown\n");
        exit(0);
    }
    // Only the address at the end matters: answers of the sandbox's resolver have one record, and options stand behind it only when asked for.
    inet_ntop(kind == 28 ? AF_INET6 : AF_INET, packet + got - size, text, sizeof text);
    if (family && family[1] == 'm') {
        memmove(text + 7, text, strlen(text) + 1);
        memcpy(text, "::ffff:", 7);
    }
    return text;
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
        return place(resolved(ip), port);
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
