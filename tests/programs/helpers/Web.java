import com.sun.net.httpserver.HttpServer;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;

/** Java's HTTP client and server: Web client ADDRESS | Web server PORT. */
public final class Web {
    private static final int REQUESTS = 32;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("server")) {
            serve(Integer.parseInt(arguments[1]));
        } else {
            fetch(arguments[1]);
        }
    }

    private static void serve(int port) throws Exception {
        var server = HttpServer.create(new InetSocketAddress(port), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            var from = exchange.getRemoteAddress().getAddress().getHostAddress();
            var at = exchange.getLocalAddress();
            var length = exchange.getRequestBody().readAllBytes().length;
            var text = "%s %s:%d %d%n".formatted(from, at.getAddress().getHostAddress(), at.getPort(), length).getBytes();
            exchange.sendResponseHeaders(200, text.length);
            try (var body = exchange.getResponseBody()) {
                body.write(text);
            }
        });
        server.start();
    }

    private static void fetch(String world) throws Exception {
        var client = HttpClient.newHttpClient();
        System.out.println("large: " + sum(client.send(get(world + "/large"), HttpResponse.BodyHandlers.ofByteArray()).body()));
        var all = IntStream.range(0, REQUESTS).mapToObj(i -> client.sendAsync(get(world + "/small"), HttpResponse.BodyHandlers.ofByteArray())).toList();
        CompletableFuture.allOf(all.toArray(CompletableFuture[]::new)).join();
        System.out.println("at once: " + all.stream().map(one -> sum(one.join().body())).distinct().toList());
        var bytes = new byte[3_000_000];
        var put = HttpRequest.newBuilder(URI.create(world + "/from-java")).PUT(HttpRequest.BodyPublishers.ofByteArray(bytes)).build();
        System.out.println("upload: " + client.send(put, HttpResponse.BodyHandlers.discarding()).statusCode());
        try {
            client.send(get(world.replaceFirst(":\\d+$", ":1") + "/"), HttpResponse.BodyHandlers.discarding());
            System.out.println("nobody listens: connected");
        } catch (ConnectException error) {
            System.out.println("nobody listens: refused");
        }
    }

    private static HttpRequest get(String address) {
        return HttpRequest.newBuilder(URI.create(address)).build();
    }

    private static String sum(byte[] bytes) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }
}
