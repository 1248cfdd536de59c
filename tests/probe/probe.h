// What the attempts share: every attempt prints one line, `name=ok` or `name=ERRNO`, and the test judges.
#ifndef PROBE_H
#define PROBE_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct place {
    struct sockaddr_storage address;
    socklen_t length;
};

struct command {
    const char *name;
    int arguments;
    int (*run)(char **arguments);
};

extern const struct command net_commands[], attack_commands[], file_commands[], bench_commands[];

// `name=ok` when the result is not negative, else `name=` and the name of errno.
int report(const char *name, long result);
void die(const char *what);
struct place place(const char *ip, const char *port);
int stream_socket(const struct place *to);
const char *spell(const struct sockaddr_storage *address, char *text, size_t size);
double now(void);

#endif
