import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ConnectException;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Echo over Java's sockets and channels, and what happens to threads that wait: Echo server|nio-server|client PORT. */
public final class Echo {
    private static final InetAddress HOST = InetAddress.getLoopbackAddress();
    private static final int CONNECTIONS = 8;

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        switch (arguments[0]) {
            case "server" -> serve(port);
            case "nio-server" -> serveByChannels(port);
            default -> client(port);
        }
    }

    private static void serve(int port) throws IOException {
        ServerSocket listener = new ServerSocket(port, 50, HOST);
        while (true) {
            Socket socket = listener.accept();
            Thread thread = new Thread(() -> {
                try (socket) {
                    socket.getInputStream().transferTo(socket.getOutputStream());
                    socket.shutdownOutput();
                } catch (IOException ended) {
                    // A client that closes early is part of the test.
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
    }

    private static void serveByChannels(int port) throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(HOST, port));
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            var ready = selector.selectedKeys().iterator();
            while (ready.hasNext()) {
                SelectionKey key = ready.next();
                ready.remove();
                if (key.isAcceptable()) {
                    SocketChannel channel = listener.accept();
                    if (channel == null) continue;
                    channel.configureBlocking(false);
                    channel.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(1 << 17));
                } else {
                    echo(key);
                }
            }
        }
    }

    /** Reads until the buffer holds something, then writes until it is empty. */
    private static void echo(SelectionKey key) throws IOException {
        SocketChannel channel = (SocketChannel) key.channel();
        ByteBuffer buffer = (ByteBuffer) key.attachment();
        try {
            if (key.isReadable()) {
                if (channel.read(buffer) < 0) {
                    channel.shutdownOutput();
                    channel.close();
                    return;
                }
                buffer.flip();
            }
            channel.write(buffer);
        } catch (IOException ended) {
            channel.close();
            return;
        }
        if (buffer.hasRemaining()) {
            key.interestOps(SelectionKey.OP_WRITE);
        } else {
            buffer.clear();
            key.interestOps(SelectionKey.OP_READ);
        }
    }

    private static void client(int port) throws Exception {
        System.out.println("sockets " + together(number -> bySocket(port, number)));
        System.out.println("channels " + together(number -> byChannel(port, number)));
        System.out.println("closed while reading: " + closedWhileReading(port));
        System.out.println("channel closed while reading: " + channelClosedWhileReading(port));
        System.out.println("closed while accepting: " + closedWhileAccepting());
        System.out.println("interrupted while reading: " + interruptedWhileReading(port));
        System.out.println("time limit: " + timeLimit(port));
        System.out.println("nobody: " + nobody());
    }

    private interface Talk {
        boolean talk(int number) throws Exception;
    }

    private static String together(Talk talk) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(CONNECTIONS);
        List<Callable<Boolean>> tasks = new ArrayList<>();
        for (int number = 0; number < CONNECTIONS; number++) {
            int its = number;
            tasks.add(() -> talk.talk(its));
        }
        int right = 0;
        for (Future<Boolean> result : threads.invokeAll(tasks)) {
            if (result.get()) right++;
        }
        threads.shutdown();
        return right + " of " + CONNECTIONS;
    }

    private static byte[] data(int number) {
        byte[] bytes = new byte[1_500_000 + number];
        new Random(number).nextBytes(bytes);
        return bytes;
    }

    private static boolean bySocket(int port, int number) throws Exception {
        byte[] sent = data(number);
        try (Socket socket = new Socket(HOST, port)) {
            socket.setTcpNoDelay(true);
            Thread writer = new Thread(() -> {
                Random sizes = new Random(number);
                try {
                    OutputStream out = socket.getOutputStream();
                    for (int at = 0; at < sent.length; ) {
                        int size = Math.min(sent.length - at, 1 + sizes.nextInt(100_000));
                        out.write(sent, at, size);
                        at += size;
                    }
                    socket.shutdownOutput();
                } catch (IOException error) {
                    error.printStackTrace();
                }
            });
            writer.start();
            InputStream in = socket.getInputStream();
            byte[] received = in.readAllBytes();
            writer.join();
            return MessageDigest.isEqual(received, sent);
        }
    }

    private static boolean byChannel(int port, int number) throws Exception {
        byte[] sent = data(number);
        byte[] received = new byte[sent.length];
        ByteBuffer out = ByteBuffer.wrap(sent);
        ByteBuffer in = ByteBuffer.wrap(received);
        try (Selector selector = Selector.open(); SocketChannel channel = SocketChannel.open()) {
            channel.configureBlocking(false);
            channel.connect(new InetSocketAddress(HOST, port));
            SelectionKey key = channel.register(selector, SelectionKey.OP_CONNECT);
            while (in.hasRemaining()) {
                selector.select();
                selector.selectedKeys().clear();
                if (key.isConnectable()) {
                    channel.finishConnect();
                    key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
                    continue;
                }
                if (key.isWritable()) {
                    channel.write(out);
                    if (!out.hasRemaining()) {
                        key.interestOps(SelectionKey.OP_READ);
                        channel.shutdownOutput();
                    }
                }
                if (key.isReadable() && channel.read(in) < 0) break;
            }
        }
        return Arrays.equals(received, sent);
    }

    private static String closedWhileReading(int port) throws Exception {
        Socket socket = new Socket(HOST, port);
        String[] seen = {"still waiting"};
        Thread reader = new Thread(() -> {
            try {
                seen[0] = "read " + socket.getInputStream().read();
            } catch (SocketException error) {
                seen[0] = "SocketException";
            } catch (IOException error) {
                seen[0] = error.toString();
            }
        });
        reader.start();
        Thread.sleep(200);
        socket.close();
        reader.join(5000);
        return seen[0];
    }

    private static String channelClosedWhileReading(int port) throws Exception {
        SocketChannel channel = SocketChannel.open(new InetSocketAddress(HOST, port));
        String[] seen = {"still waiting"};
        Thread reader = new Thread(() -> {
            try {
                seen[0] = "read " + channel.read(ByteBuffer.allocate(10));
            } catch (AsynchronousCloseException error) {
                seen[0] = "AsynchronousCloseException";
            } catch (IOException error) {
                seen[0] = error.toString();
            }
        });
        reader.start();
        Thread.sleep(200);
        channel.close();
        reader.join(5000);
        return seen[0];
    }

    private static String closedWhileAccepting() throws Exception {
        ServerSocket listener = new ServerSocket(0, 5, HOST);
        String[] seen = {"still waiting"};
        Thread accepting = new Thread(() -> {
            try {
                listener.accept();
                seen[0] = "accepted";
            } catch (SocketException error) {
                seen[0] = "SocketException";
            } catch (IOException error) {
                seen[0] = error.toString();
            }
        });
        accepting.start();
        Thread.sleep(200);
        listener.close();
        accepting.join(5000);
        return seen[0];
    }

    private static String interruptedWhileReading(int port) throws Exception {
        SocketChannel channel = SocketChannel.open(new InetSocketAddress(HOST, port));
        String[] seen = {"still waiting"};
        Thread reader = new Thread(() -> {
            try {
                seen[0] = "read " + channel.read(ByteBuffer.allocate(10));
            } catch (IOException error) {
                seen[0] = error.getClass().getSimpleName();
            }
        });
        reader.start();
        Thread.sleep(200);
        reader.interrupt();
        reader.join(5000);
        return seen[0] + (channel.isOpen() ? ", open" : ", closed");
    }

    private static String timeLimit(int port) throws Exception {
        try (Socket socket = new Socket(HOST, port)) {
            socket.setSoTimeout(150);
            return "read " + socket.getInputStream().read();
        } catch (SocketTimeoutException error) {
            return "SocketTimeoutException";
        }
    }

    private static String nobody() throws Exception {
        try (Socket socket = new Socket(HOST, 1)) {
            return "connected";
        } catch (ConnectException error) {
            return "ConnectException";
        }
    }
}
