/* Gives one process names of hosts: RINGFENCE_HOSTS has words "NAME=IP,IP". The IPs of a name are
 * found in this order. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

typedef int resolve(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    resolve *system = (resolve *)dlsym(RTLD_NEXT, "getaddrinfo");
    const char *hosts = getenv("RINGFENCE_HOSTS");
    char *copy = hosts && node ? strdup(hosts) : NULL;
    char *words, *ips;
    for (char *word = copy ? strtok_r(copy, " ", &words) : NULL; word; word = strtok_r(NULL, " ", &words)) {
        char *equals = strchr(word, '=');
        if (!equals || strncmp(word, node, (size_t)(equals - word)) || node[equals - word]) continue;
        struct addrinfo **last = found;
        int failed = 0;
        for (char *ip = strtok_r(equals + 1, ",", &ips); ip && !failed; ip = strtok_r(NULL, ",", &ips)) {
            failed = system(ip, service, hints, last);
            while (!failed && *last) last = &(*last)->ai_next;
        }
        free(copy);
        return failed;
    }
    free(copy);
    return system(node, service, hints, found);
}
