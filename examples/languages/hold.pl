# Holds a lock of `ringfence serve`. Needs only modules that come with Perl.
use strict;
use warnings;
use IO::Socket::UNIX;
use JSON::PP;

# Calls $told with each event of a lock, until it returns true. Closing the socket releases the lock.
sub hold {
    my ($path, $order, $told) = @_;
    my $body = encode_json($order);
    my $socket = IO::Socket::UNIX->new(Peer => $path) or return;
    # HTTP/1.0: the answer is the plain lines, until the connection ends.
    print $socket "POST /v1/hold HTTP/1.0\r\ncontent-length: " . length($body) . "\r\n\r\n$body";
    $socket->flush;
    my $status = <$socket> // return;
    while (my $header = <$socket>) { last if $header eq "\r\n" }
    die join('', <$socket>) unless $status =~ / 200 /;
    while (my $line = <$socket>) { last if $told->(decode_json($line)) }
    close $socket;
}

my ($path, $name, $counter, $rounds) = @ARGV;
$| = 1;

if ($rounds == 0) {
    my $why = 'the service has gone';
    hold($path, { name => $name, ttl => '2s' }, sub {
        my ($event) = @_;
        print "held $event->{fence}\n" if $event->{event} eq 'held';
        $why = $event->{why} if $event->{event} eq 'lost';
        return 0;
    });
    print "lost: $why\n";
    exit 79;
}

for (1 .. $rounds) {
    hold($path, { name => $name, ttl => '10s' }, sub {
        my ($event) = @_;
        return 0 unless $event->{event} eq 'held';
        open my $in, '<', $counter or die $!;
        my ($count, $fence) = split ' ', <$in>;
        die "the fence $event->{fence} is not above $fence" if $event->{fence} <= $fence;
        open my $out, '>', $counter or die $!;
        print $out $count + 1, " $event->{fence}";
        close $out;
        return 1;
    });
}
