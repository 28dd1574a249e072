/* Work in shares, each in a thread of its own. */
#include <pthread.h>

#define MOST_THREADS 64

/* ``work`` of each share, of ``size`` bytes, ``threads`` of them; where no thread can be had, in this one. */
static void in_threads(void *(*work)(void *), char *shares, size_t size, int threads) {
    pthread_t others[MOST_THREADS];
    int started[MOST_THREADS] = {0};
    for (int i = 1; i < threads; i++) started[i] = pthread_create(&others[i], NULL, work, shares + (size_t)i * size) == 0;
    for (int i = 0; i < threads; i++)
        if (!started[i]) work(shares + (size_t)i * size);
    for (int i = 1; i < threads; i++)
        if (started[i]) pthread_join(others[i], NULL);
}

static int some_threads(int wanted) { return wanted < 1 ? 1 : wanted > MOST_THREADS ? MOST_THREADS : wanted; }
