<?php
// Holds a lock of `ringfence serve`. Needs only PHP itself.

// Yields the events of a lock. Closing the socket releases the lock.
function hold(string $path, array $order): Generator
{
    $body = json_encode($order);
    $socket = stream_socket_client("unix://$path");
    stream_set_timeout($socket, 365 * 86400);
    // HTTP/1.0: the answer is the plain lines, until the connection ends.
    fwrite($socket, "POST /v1/hold HTTP/1.0\r\ncontent-length: " . strlen($body) . "\r\n\r\n$body");
    $status = fgets($socket);
    while (($header = fgets($socket)) !== false && $header !== "\r\n");
    if (!str_contains((string) $status, ' 200 ')) {
        fwrite(STDERR, stream_get_contents($socket));
        exit(1);
    }
    try {
        while (($line = fgets($socket)) !== false) {
            yield json_decode($line, true);
        }
    } finally {
        fclose($socket);
    }
}

[, $path, $name, $counter, $rounds] = $argv;

if ($rounds === '0') {
    $why = 'the service has gone';
    foreach (hold($path, ['name' => $name, 'ttl' => '2s']) as $event) {
        if ($event['event'] === 'held') {
            echo "held {$event['fence']}\n";
        } elseif ($event['event'] === 'lost') {
            $why = $event['why'];
        }
    }
    echo "lost: $why\n";
    exit(79);
}

for ($round = 0; $round < (int) $rounds; $round++) {
    foreach (hold($path, ['name' => $name, 'ttl' => '10s']) as $event) {
        if ($event['event'] !== 'held') {
            continue;
        }
        [$count, $fence] = array_map('intval', explode(' ', file_get_contents($counter)));
        if ($event['fence'] <= $fence) {
            exit("the fence {$event['fence']} is not above $fence\n");
        }
        file_put_contents($counter, ($count + 1) . " {$event['fence']}");
        break;
    }
}
