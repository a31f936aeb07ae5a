/* The quick way past holdfast-runc, for calls about containers that have not opted in.
 *
 * `holdfast container install` compiles it where there is a compiler and puts it in front of the
 * shell script of the same name, to which it hands everything that may be ours. It decides nothing
 * but that: what is certainly nobody's becomes runc at once, without starting a shell or grep. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#ifndef RUNC
#error "compile with -DRUNC and -DSCRIPT: the real runc, and the shell script"
#endif

static const char WORD[] = "holdfast"; /* in a configuration, in either case */

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static int is_one_of(const char *word, const char *const *list) {
    for (; *list; list++)
        if (!strcmp(word, *list)) return 1;
    return 0;
}

/* The value of an option, if this word is it: behind its `=`, or the next word. */
static char *value_of(char **word, const char *name) {
    char *at = *word + 1 + (word[0][1] == '-');
    size_t length = strlen(name);
    if (**word != '-' || strncmp(at, name, length)) return NULL;
    if (at[length] == '=') return at + length + 1;
    return at[length] ? NULL : word[1];
}

/* Whether a file has the word in it. One that cannot be opened has not: runc will say so. */
static int mentions_us(const char *bundle) {
    enum { KEPT = sizeof WORD - 2 }; /* the end of what was read before may be its beginning */
    char path[4096], data[KEPT + 65536];
    size_t held = 0;
    ssize_t got;
    if (snprintf(path, sizeof path, "%s/config.json", bundle) >= (int)sizeof path) return 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    while ((got = read(fd, data + held, sizeof data - held)) > 0) {
        size_t end = held + (size_t)got;
        for (size_t at = 0; at + KEPT < end; at++)
            if ((data[at] | 32) == WORD[0] && !strncasecmp(data + at, WORD, KEPT + 1)) return 1;
        held = end < KEPT ? end : KEPT;
        memmove(data, data + end - held, held);
    }
    return got < 0;
}

/* Whether a word may be the id of a container that has opted in. */
static int is_marked(const char *root, const char *id) {
    static const char *const marks[] = {"marker", "unstarted", "operation.json"};
    const char *run = setting("HOLDFAST_RUN", "/run/holdfast");
    char path[8192];
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        int length = snprintf(path, sizeof path, "%s/containers%s/@%s/%s", run, root, id, marks[i]);
        if (length >= (int)sizeof path || !access(path, F_OK)) return 1;
    }
    return 0;
}

/* The root without slashes at its end; NULL when it is written in an unusual way, and may be that
 * of a marked container under another name. */
static const char *plain(char *root) {
    size_t length = strlen(root);
    while (length && root[length - 1] == '/') root[--length] = 0;
    if (length && *root != '/') return NULL;
    if (strstr(root, "//") || strstr(root, "/./") || strstr(root, "/../")) return NULL;
    if (length > 1 && !strcmp(root + length - 2, "/.")) return NULL;
    if (length > 2 && !strcmp(root + length - 3, "/..")) return NULL;
    return root;
}

static int may_be_ours(char **word) {
    static const char *const globals[] = {"root", "log", "log-format", "criu", "rootless", NULL};
    static const char *const making[] = {"create", "restore", NULL};
    static const char *const about[] = {"start", "checkpoint", "pause", "resume",
                                        "delete", "kill", "state", NULL};
    char *root = NULL, *bundle = ".", *value;
    for (; *word && **word == '-'; word++) /* up to the subcommand */
        for (const char *const *name = globals; *name; name++)
            if ((value = value_of(word, *name))) {
                if (name == globals) root = value;
                if (value == word[1]) word++;
                break;
            }
    if (!*word) return 0;
    if (is_one_of(*word, making)) {
        while (*++word)
            if ((value = value_of(word, "bundle")) || (value = value_of(word, "b"))) bundle = value;
        return mentions_us(bundle);
    }
    if (!is_one_of(*word, about)) return 0;
    char *copy = strdup(root && *root ? root : "/run/runc");
    const char *place = copy ? plain(copy) : NULL;
    if (!place) return 1;
    while (*++word) /* whichever of them is the id; it has no slash */
        if (!strchr(*word, '/') && is_marked(place, *word)) return 1;
    return 0;
}

int main(int count, char **argv) {
    char *real = (char *)setting("HOLDFAST_RUNC", RUNC);
    if (count > 0 && may_be_ours(argv + 1)) execv(SCRIPT, argv); /* and if it is gone, runc */
    if (count > 0) argv[0] = real;
    execv(real, argv);
    perror(real);
    return 127;
}
