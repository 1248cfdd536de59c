// Attempts on files.
#include "probe.h"
#include <sys/sysmacros.h>
#include <sys/xattr.h>

// file OPERATION PATH [OTHER]
static int file(char **a) {
    const char *what = a[0], *path = a[1];
    if (!strcmp(what, "read")) {
        char byte;
        int f = open(path, O_RDONLY);
        return report(what, f < 0 ? -1 : read(f, &byte, 1));
    }
    if (!strcmp(what, "write"))
        return report(what, open(path, O_WRONLY));
    if (!strcmp(what, "create"))
        return report(what, open(path, O_WRONLY | O_CREAT, 0644));
    if (!strcmp(what, "open-truncate"))
        return report(what, open(path, O_RDONLY | O_TRUNC));
    if (!strcmp(what, "truncate"))
        return report(what, truncate(path, 0));
    if (!strcmp(what, "chmod"))
        return report(what, chmod(path, 0777));
    if (!strcmp(what, "chown"))
        return report(what, chown(path, getuid(), getgid()));
    if (!strcmp(what, "utime"))
        return report(what, utimensat(AT_FDCWD, path, 0, 0));
    if (!strcmp(what, "setxattr"))
        return report(what, setxattr(path, "user.holdfast", "x", 1, 0));
    if (!strcmp(what, "unlink"))
        return report(what, unlink(path));
    if (!strcmp(what, "mkdir"))
        return report(what, mkdir(path, 0755));
    if (!strcmp(what, "mknod"))
        return report(what, mknod(path, S_IFCHR | 0666, makedev(1, 1)));
    return 97;
}

// two-files OPERATION FROM TO
static int two_files(char **a) {
    if (!strcmp(a[0], "rename"))
        return report(a[0], rename(a[1], a[2]));
    if (!strcmp(a[0], "exchange"))
        return report(a[0], renameat2(AT_FDCWD, a[1], AT_FDCWD, a[2], RENAME_EXCHANGE));
    if (!strcmp(a[0], "link"))
        return report(a[0], link(a[1], a[2]));
    if (!strcmp(a[0], "symlink"))
        return report(a[0], symlink(a[1], a[2]));
    return 97;
}

const struct command file_commands[] = {{"file", 2, file}, {"two-files", 3, two_files}, {0}};
