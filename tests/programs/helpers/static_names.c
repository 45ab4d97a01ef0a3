// Names by the C library's own resolver, linked statically: prints the addresses of each, or the error.
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int main(int count, char **words) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    for (int index = 1; index < count; index++) {
        int code = getaddrinfo(words[index], NULL, &hints, &found);
        printf("%s: %s", words[index], code ? gai_strerror(code) : "");
        for (struct addrinfo *one = code ? NULL : found; one; one = one->ai_next) {
            char text[64];
            getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
            printf(" %s", text);
        }
        printf("\n");
    }
    return 0;
}
