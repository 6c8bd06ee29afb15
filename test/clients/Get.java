import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;

/** Asks for the addresses that it is given with Java's client as it is, and prints status and body of each answer. */
class Get {
  static final int TRIES = 5;

  public static void main(String[] addresses) throws Exception {
    HttpClient client = HttpClient.newHttpClient();
    for (String address : addresses) {
      var answer = send(client, HttpRequest.newBuilder(URI.create(address)).build());
      System.out.printf("%d %s%n", answer.statusCode(), answer.body());
    }
    // Its threads would keep the program for a while.
    System.exit(0);
  }

  /** Java loads its classes of TLS during the first handshake, in a slow guest for longer than any server waits. */
  static HttpResponse<String> send(HttpClient client, HttpRequest request) throws Exception {
    for (int tries = 1; ; tries++) {
      try {
        return client.send(request, BodyHandlers.ofString());
      } catch (IOException error) {
        if (tries == TRIES) throw error;
      }
    }
  }
}
