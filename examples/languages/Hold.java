// Holds a lock of `ringfence serve`. Needs only Java 16 or later.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Hold {
    /** Passes each event of a lock to `told`, until it returns true. Closing the channel releases the lock. */
    static void hold(String path, String name, String ttl, Predicate<String> told) throws IOException {
        String body = "{\"name\": \"" + name + "\", \"ttl\": \"" + ttl + "\"}";
        // HTTP/1.0: the answer is the plain lines, until the connection ends.
        String request = "POST /v1/hold HTTP/1.0\r\ncontent-length: " + body.length() + "\r\n\r\n" + body;
        try (SocketChannel channel = SocketChannel.open(UnixDomainSocketAddress.of(path))) {
            channel.write(ByteBuffer.wrap(request.getBytes()));
            BufferedReader lines = new BufferedReader(new InputStreamReader(Channels.newInputStream(channel)));
            String status = lines.readLine();
            for (String header = status; header != null && !header.isEmpty(); ) {
                header = lines.readLine();
            }
            if (status == null || !status.contains(" 200 ")) {
                throw new IOException(status + ": " + lines.readLine());
            }
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (told.test(line)) {
                    return;
                }
            }
        }
    }

    /** The value of a field. Use a JSON library in earnest. */
    static String field(String line, String field) {
        Matcher found = Pattern.compile("\"" + field + "\":\"?([^\",}]*)").matcher(line);
        return found.find() ? found.group(1) : "";
    }

    public static void main(String[] args) throws IOException {
        String path = args[0], name = args[1];
        Path counter = Path.of(args[2]);
        int rounds = Integer.parseInt(args[3]);
        if (rounds == 0) {
            String[] why = {"the service has gone"};
            try {
                hold(path, name, "2s", line -> {
                    switch (field(line, "event")) {
                        case "held" -> System.out.println("held " + field(line, "fence"));
                        case "lost" -> why[0] = field(line, "why");
                        default -> { }
                    }
                    return false;
                });
            } catch (IOException gone) {
                // The service has gone.
            }
            System.out.println("lost: " + why[0]);
            System.exit(79);
        }
        for (int round = 0; round < rounds; round++) {
            hold(path, name, "10s", line -> field(line, "event").equals("held") && count(counter, line));
        }
    }

    static boolean count(Path counter, String line) {
        try {
            String[] before = Files.readString(counter).trim().split(" ");
            long fence = Long.parseLong(field(line, "fence"));
            if (fence <= Long.parseLong(before[1])) {
                System.out.println("the fence " + fence + " is not above " + before[1]);
                System.exit(1);
            }
            Files.writeString(counter, (Long.parseLong(before[0]) + 1) + " " + fence);
            return true;
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
