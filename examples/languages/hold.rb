# Holds a lock of `ringfence serve`. Needs only Ruby's standard library.
require "json"
require "socket"

# Yields the events of a lock. Closing the socket releases the lock.
def hold(path, order)
  body = JSON.generate(order)
  UNIXSocket.open(path) do |socket|
    # HTTP/1.0: the answer is the plain lines, until the connection ends.
    socket.write("POST /v1/hold HTTP/1.0\r\ncontent-length: #{body.bytesize}\r\n\r\n#{body}")
    status = socket.gets
    nil until (header = socket.gets).nil? || header == "\r\n"
    abort(socket.read) unless status.include?(" 200 ")
    while (line = socket.gets)
      return if yield(JSON.parse(line)) == :release
    end
  end
rescue SystemCallError, IOError
  # The service has gone.
end

path, name, counter, rounds = ARGV
$stdout.sync = true

if rounds == "0"
  why = "the service has gone"
  hold(path, { name: name, ttl: "2s" }) do |event|
    puts "held #{event["fence"]}" if event["event"] == "held"
    why = event["why"] if event["event"] == "lost"
  end
  puts "lost: #{why}"
  exit 79
end

rounds.to_i.times do
  hold(path, { name: name, ttl: "10s" }) do |event|
    next unless event["event"] == "held"
    count, fence = File.read(counter).split.map(&:to_i)
    abort "the fence #{event["fence"]} is not above #{fence}" if event["fence"] <= fence
    File.write(counter, "#{count + 1} #{event["fence"]}")
    :release
  end
end
