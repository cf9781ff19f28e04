// Redisson behind the line protocol of ../README.md.
//
// usage: java -cp … Peer.java rlock|fair|fenced|redlock URL,URL,…
//
// The first three use only the first node, as Redisson's users do. Its renewing watchdog is off,
// because every lock is given a lease.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;
import java.util.stream.Collectors;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Peer {
    private final String library;
    private final List<RedissonClient> nodes = new ArrayList<>();
    // Redisson's owner is a thread: this thread takes and releases the lock of the session.
    private RLock held;

    Peer(String library, String[] urls) {
        this.library = library;
        for (String url : urls) {
            Config config = new Config();
            config.useSingleServer().setAddress(url).setConnectionMinimumIdleSize(8);
            nodes.add(Redisson.create(config));
        }
    }

    private RLock lock(String name) {
        return switch (library) {
            case "rlock" -> nodes.get(0).getLock(name);
            case "fair" -> nodes.get(0).getFairLock(name);
            case "fenced" -> nodes.get(0).getFencedLock(name);
            case "redlock" -> new RedissonRedLock(
                    nodes.stream().map(node -> node.getLock(name)).toArray(RLock[]::new));
            default -> throw new IllegalArgumentException(library);
        };
    }

    /** Takes the lock repeatedly. The witness is a file that only one client can create. */
    private String contend(String name, long ttlMs, long ms, Path witness) throws Exception {
        long end = System.nanoTime() + ms * 1_000_000;
        int entered = 0;
        while (System.nanoTime() < end) {
            RLock lock = lock(name);
            if (!lock.tryLock(0, ttlMs, TimeUnit.MILLISECONDS)) {
                Thread.sleep(5);
                continue;
            }
            try {
                Files.createFile(witness);
            } catch (FileAlreadyExistsException taken) {
                return "broken another client was inside";
            }
            entered++;
            Thread.sleep(2);
            Files.delete(witness);
            lock.unlock();
        }
        return "entered " + entered;
    }

    private interface Work {
        void run(int task) throws Exception;
    }

    /** Runs `work` in threads that start at once. Returns how long it took, in nanoseconds. */
    private static long together(int tasks, Work work) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(tasks);
        CountDownLatch gate = new CountDownLatch(1);
        List<Future<Void>> running = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            int number = task;
            Callable<Void> call = () -> {
                gate.await();
                work.run(number);
                return null;
            };
            running.add(pool.submit(call));
        }
        long begun = System.nanoTime();
        gate.countDown();
        for (Future<Void> task : running) {
            task.get();
        }
        pool.shutdown();
        return System.nanoTime() - begun;
    }

    /** Locks and releases until the time is over. Times the wait, or both if nothing is held. */
    private String againAndAgain(int tasks, long ms, IntFunction<String> nameOf, long ttlMs, long holdUs)
            throws Exception {
        long[] counts = new long[tasks];
        List<List<Long>> times = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            times.add(new ArrayList<>());
        }
        long took = together(tasks, task -> {
            long end = System.nanoTime() + ms * 1_000_000;
            for (long begun; (begun = System.nanoTime()) < end; ) {
                RLock lock = lock(nameOf.apply(task));
                lock.lock(ttlMs, TimeUnit.MILLISECONDS);
                if (holdUs > 0) {
                    times.get(task).add(System.nanoTime() - begun);
                    TimeUnit.MICROSECONDS.sleep(holdUs);
                }
                lock.unlock();
                if (holdUs == 0) {
                    times.get(task).add(System.nanoTime() - begun);
                }
                counts[task]++;
            }
        });
        return report(counts, took, times.stream().flatMap(List::stream).sorted().toList());
    }

    /** All tasks start at once, and each takes the lock once. */
    private String drain(int tasks, String name, long ttlMs, long holdUs) throws Exception {
        long took = together(tasks, task -> {
            RLock lock = lock(name);
            lock.lock(ttlMs, TimeUnit.MILLISECONDS);
            TimeUnit.MICROSECONDS.sleep(holdUs);
            lock.unlock();
        });
        long[] counts = new long[tasks];
        Arrays.fill(counts, 1);
        return report(counts, took, List.of());
    }

    private static String report(long[] counts, long tookNs, List<Long> timesNs) {
        String each = Arrays.stream(counts).mapToObj(Long::toString).collect(Collectors.joining(","));
        return "{\"counts\":[%s],\"took_us\":%d,\"p50_us\":%s,\"p99_us\":%s}"
                .formatted(each, tookNs / 1000, quantileUs(timesNs, 0.5), quantileUs(timesNs, 0.99));
    }

    private static double quantileUs(List<Long> times, double q) {
        return times.isEmpty() ? 0 : times.get((int) ((times.size() - 1) * q)) / 1000.0;
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "try":
                held = lock(words[1]);
                return held.tryLock(0, Long.parseLong(words[2]), TimeUnit.MILLISECONDS) ? "held" : "refused";
            case "release":
                held.unlock();
                return "released";
            case "contend":
                return contend(words[1], Long.parseLong(words[2]), Long.parseLong(words[3]), Path.of(words[4]));
            case "cycles":
                return againAndAgain(Integer.parseInt(words[1]), Long.parseLong(words[2]),
                        task -> words[3] + ":" + task, Long.parseLong(words[4]), 0);
            case "share":
                return againAndAgain(Integer.parseInt(words[1]), Long.parseLong(words[2]),
                        task -> words[3], Long.parseLong(words[4]), Long.parseLong(words[5]));
            case "drain":
                return drain(Integer.parseInt(words[1]), words[2], Long.parseLong(words[3]), Long.parseLong(words[4]));
            default:
                return "error unknown command: " + words[0];
        }
    }

    public static void main(String[] arguments) throws IOException {
        Peer peer = new Peer(arguments[0], arguments[1].split(","));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line; (line = lines.readLine()) != null; ) {
            String reply;
            try {
                reply = peer.answer(line.split(" "));
            } catch (Exception failure) {
                reply = ("error " + failure).replace('\n', ' ');
            }
            System.out.println(reply);
        }
        // Redisson's threads must not keep the program alive.
        System.exit(0);
    }
}
