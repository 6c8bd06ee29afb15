// Asks for the addresses that it is given with net/http as it is, and prints status and body of each answer.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	for _, address := range os.Args[1:] {
		answer, err := http.Get(address)
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s\n", answer.StatusCode, body)
	}
}
