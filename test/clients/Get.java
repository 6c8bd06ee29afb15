import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

/** Asks for the addresses that it is given with Java's client as it is, and prints status and body of each answer. */
class Get {
  public static void main(String[] addresses) throws Exception {
    HttpClient client = HttpClient.newHttpClient();
    for (String address : addresses) {
      var answer = client.send(HttpRequest.newBuilder(URI.create(address)).build(), BodyHandlers.ofString());
      System.out.printf("%d %s%n", answer.statusCode(), answer.body());
    }
    // Its threads would keep the program for a while.
    System.exit(0);
  }
}
