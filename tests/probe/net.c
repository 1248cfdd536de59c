// Attempts to reach someone.
#include "probe.h"
#include <netinet/tcp.h>

static void peer_of(int s) {
    struct sockaddr_storage peer = {0}, local = {0};
    socklen_t length = sizeof peer;
    char a[96], b[96];
    if (getpeername(s, (void *)&peer, &length)) {
        report("peer", -1);
        return;
    }
    length = sizeof local;
    getsockname(s, (void *)&local, &length);
    printf("peer=%s\nlocal=%s\n", spell(&peer, a, sizeof a), spell(&local, b, sizeof b));
}

// connect IP PORT: blocking.
static int blocking(char **a) {
    struct place to = place(a[0], a[1]);
    int s = stream_socket(&to);
    double began = now();
    int done = connect(s, (void *)&to.address, to.length);
    double took = now() - began;
    report("connect", done);
    printf("ms=%.0f\n", took * 1e3);
    if (!done)
        peer_of(s);
    return 0;
}

// poll-connect IP PORT MS: non-blocking, as event loops do it.
static int polled(char **a) {
    struct place to = place(a[0], a[1]);
    int s = stream_socket(&to), error = -1, kept = 0;
    int one = 1;
    socklen_t length = sizeof error, kept_length = sizeof kept;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(s, F_SETFL, O_NONBLOCK);
    double began = now();
    report("connect", connect(s, (void *)&to.address, to.length));
    printf("connect_ms=%.0f\n", (now() - began) * 1e3);
    struct pollfd p = {.fd = s, .events = POLLOUT};
    int ready = poll(&p, 1, atoi(a[2]));
    printf("poll=%s\n", !ready ? "timeout" : p.revents & POLLERR ? "error" : p.revents & POLLOUT ? "out" : "other");
    if (!ready)
        return 0;
    getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &length);
    errno = error;
    report("so_error", error ? -1 : 0);
    peer_of(s);
    getsockopt(s, IPPROTO_TCP, TCP_NODELAY, &kept, &kept_length);
    printf("nodelay=%d\n", !!kept);
    return 0;
}

// limited-connect IP PORT MS: blocking, with SO_SNDTIMEO.
static int limited(char **a) {
    struct place to = place(a[0], a[1]);
    int s = stream_socket(&to), ms = atoi(a[2]);
    struct timeval limit = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    double began = now();
    report("connect", connect(s, (void *)&to.address, to.length));
    printf("ms=%.0f\n", (now() - began) * 1e3);
    return 0;
}

// talk IP PORT TEXT: connect, say TEXT, shut down writing, read to the end.
static int talk(char **a) {
    struct place to = place(a[0], a[1]);
    int s = stream_socket(&to);
    char buffer[65536], head[33] = "";
    ssize_t got, total = 0;
    uint32_t sum = 0;
    int connected = connect(s, (void *)&to.address, to.length);
    report("connect", connected);
    if (connected)
        return 0;
    if (write(s, a[2], strlen(a[2])) < 0)
        return report("write", -1);
    shutdown(s, SHUT_WR);
    while ((got = read(s, buffer, sizeof buffer)) > 0) {
        if (!total)
            memcpy(head, buffer, got < 32 ? got : 32);
        for (ssize_t i = 0; i < got; i++)
            sum = sum * 31 + (unsigned char)buffer[i];
        total += got;
    }
    report("read", got);
    head[strcspn(head, "\r\n")] = 0;
    printf("bytes=%zd\nsum=%u\nhead=%s\n", total, sum, head);
    return 0;
}

// udp IP PORT: three ways to send without a connection, and connect + send.
static int udp(char **a) {
    struct place to = place(a[0], a[1]);
    int family = to.address.ss_family;
    int s = socket(family, SOCK_DGRAM, 0);
    double began = now();
    report("socket", s);
    report("sendto", sendto(s, "x", 1, 0, (void *)&to.address, to.length));
    struct iovec part = {"y", 1};
    struct msghdr message = {.msg_name = &to.address, .msg_namelen = to.length, .msg_iov = &part, .msg_iovlen = 1};
    report("sendmsg", sendmsg(s, &message, 0));
    struct mmsghdr many[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    report("sendmmsg", sendmmsg(s, many, 2, 0));
    int c = socket(family, SOCK_DGRAM, 0);
    int connected = connect(c, (void *)&to.address, to.length);
    report("connect", connected);
    report("send", connected ? -1 : send(c, "z", 1, 0));
    printf("ms=%.0f\n", (now() - began) * 1e3);
    return 0;
}

// fastopen IP PORT: data in the SYN, without connect().
static int fastopen(char **a) {
    signal(SIGPIPE, SIG_IGN);
    struct place to = place(a[0], a[1]);
    int s = stream_socket(&to);
    report("sendto", sendto(s, "x", 1, MSG_FASTOPEN, (void *)&to.address, to.length));
    int t = stream_socket(&to);
    struct iovec part = {"y", 1};
    struct msghdr message = {.msg_name = &to.address, .msg_namelen = to.length, .msg_iov = &part, .msg_iovlen = 1};
    report("sendmsg", sendmsg(t, &message, MSG_FASTOPEN));
    int u = stream_socket(&to), one = 1;
    report("option", setsockopt(u, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof one));
    report("connect", connect(u, (void *)&to.address, to.length));
    report("write", write(u, "z", 1));
    return 0;
}

// mptcp IP PORT: a socket of another protocol with the same addresses.
static int mptcp(char **a) {
    struct place to = place(a[0], a[1]);
    int s = socket(to.address.ss_family, SOCK_STREAM, 262);
    report("socket", s);
    if (s >= 0)
        report("connect", connect(s, (void *)&to.address, to.length));
    return 0;
}

// socket DOMAIN TYPE PROTOCOL, as numbers.
static int any_socket(char **a) { return report("socket", socket(atoi(a[0]), atoi(a[1]), atoi(a[2]))); }

// listen-without-bind: prints the port and serves one connection, or ends when its input does.
static int listen_without_bind(char **a) {
    (void)a;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_storage it = {0};
    socklen_t length = sizeof it;
    char text[96];
    report("listen", listen(s, 8));
    getsockname(s, (void *)&it, &length);
    printf("at=%s\n", spell(&it, text, sizeof text));
    fflush(stdout);
    struct pollfd both[2] = {{.fd = s, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    poll(both, 2, 20000);
    printf("visited=%s\n", both[0].revents & POLLIN ? "yes" : "no");
    return 0;
}

// unix stream|dgram NAME: a path, or @NAME for an abstract one.
static int unix_socket(char **a) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + strlen(a[1]);
    strncpy(to.sun_path, a[1], sizeof to.sun_path - 1);
    if (*a[1] == '@')
        to.sun_path[0] = 0;
    if (!strcmp(a[0], "stream"))
        return report("connect", connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&to, length));
    return report("sendto", sendto(socket(AF_UNIX, SOCK_DGRAM, 0), "x", 1, 0, (void *)&to, length));
}

// unix-inside PATH: both ends of named and abstract sockets here, and a descriptor passed from one to the other.
static int unix_inside(char **a) {
    struct sockaddr_un at[2] = {{.sun_family = AF_UNIX}, {.sun_family = AF_UNIX}};
    strncpy(at[0].sun_path, a[0], sizeof at[0].sun_path - 1);
    strcpy(at[1].sun_path + 1, "holdfast-probe-inside");
    for (int i = 0; i < 2; i++) {
        const char *names[2][3] = {{"bind", "connect", "accept"}, {"abstract_bind", "abstract_connect", "abstract_accept"}};
        int l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
        report(names[i][0], bind(l, (void *)&at[i], sizeof at[i]) | listen(l, 1));
        report(names[i][1], connect(c, (void *)&at[i], sizeof at[i]));
        report(names[i][2], accept(l, 0, 0));
    }
    int pair[2], passed = -1;
    report("socketpair", socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    char letter = 'p', room[CMSG_SPACE(sizeof(int))] = {0}, read_back[16] = "";
    struct iovec part = {&letter, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    int file = open("/etc/hostname", O_RDONLY);
    *h = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof file), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(h), &file, sizeof file);
    report("pass", sendmsg(pair[0], &m, 0));
    report("receive", recvmsg(pair[1], &m, 0));
    memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof passed);
    return report("passed_read", read(passed, read_back, sizeof read_back));
}

// loopback: the sandbox's own servers, on both families and in the mapped form.
static int loopback(char **a) {
    (void)a;
    const char *ips[][3] = {{"127.0.0.1", "127.0.0.1", "four"}, {"::1", "::1", "six"}, {"127.0.0.1", "::ffff:127.0.0.1", "mapped"}};
    for (int i = 0; i < 3; i++) {
        struct place at = place(ips[i][0], "0");
        int l = stream_socket(&at);
        if (bind(l, (void *)&at.address, at.length) || listen(l, 4) || getsockname(l, (void *)&at.address, &at.length))
            die("listen");
        char port[8];
        snprintf(port, sizeof port, "%d", ntohs(((struct sockaddr_in *)&at.address)->sin_port));
        struct place to = place(ips[i][1], port);
        int c = stream_socket(&to);
        report(ips[i][2], connect(c, (void *)&to.address, to.length));
    }
    int u = socket(AF_INET, SOCK_DGRAM, 0), v = socket(AF_INET, SOCK_DGRAM, 0);
    struct place at = place("127.0.0.1", "0");
    bind(u, (void *)&at.address, at.length);
    getsockname(u, (void *)&at.address, &at.length);
    report("udp_send", sendto(v, "x", 1, 0, (void *)&at.address, at.length));
    struct pollfd p = {.fd = u, .events = POLLIN};
    printf("udp_arrived=%s\n", poll(&p, 1, 2000) == 1 ? "yes" : "no");
    return 0;
}

// dns udp|tcp SERVER HEX: one raw query; the answer as hex, and where it came from.
static int dns(char **a) {
    struct place to = place(a[1], "53"), from = {.length = sizeof from.address};
    unsigned char query[1024], answer[65536];
    size_t length = strlen(a[2]) / 2;
    int tcp = !strcmp(a[0], "tcp");
    for (size_t i = 0; i < length && i < sizeof query - 2; i++)
        sscanf(a[2] + 2 * i, "%2hhx", query + 2 + i);
    query[0] = length >> 8;
    query[1] = length;
    int s = socket(to.address.ss_family, tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
    struct timeval limit = {.tv_sec = 8};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ssize_t got, total = 0;
    double began = now();
    if (tcp) {
        // The length prefix in two pieces: a resolver that reads it in one go would hang.
        if (connect(s, (void *)&to.address, to.length) || write(s, query, 1) != 1 || write(s, query + 1, length + 1) < 0)
            return report("query", -1);
        while (total < 2 || total < 2 + (answer[0] << 8 | answer[1])) {
            if ((got = read(s, answer + total, sizeof answer - total)) <= 0)
                return report("answer", -1);
            total += got;
        }
        from = to;
    } else {
        if (sendto(s, query + 2, length, 0, (void *)&to.address, to.length) < 0)
            return report("query", -1);
        if ((total = recvfrom(s, answer, sizeof answer, 0, (void *)&from.address, &from.length)) < 0)
            return report("answer", -1);
    }
    char text[96];
    printf("from=%s\nms=%.0f\nhex=", spell(&from.address, text, sizeof text), (now() - began) * 1e3);
    for (ssize_t i = tcp ? 2 : 0; i < total; i++)
        printf("%02x", answer[i]);
    printf("\n");
    return 0;
}

const struct command net_commands[] = {
    {"connect", 2, blocking},      {"poll-connect", 3, polled},      {"limited-connect", 3, limited},
    {"talk", 3, talk},             {"udp", 2, udp},                  {"fastopen", 2, fastopen},
    {"mptcp", 2, mptcp},           {"socket", 3, any_socket},        {"listen-without-bind", 0, listen_without_bind},
    {"unix", 2, unix_socket},      {"unix-inside", 1, unix_inside},  {"loopback", 0, loopback},
    {"dns", 3, dns},               {0},
};
