/** Calls methods of a gRPC origin with grpc-js as it is: `greet.mjs HOST METHOD...`. Prints each answer, or why there is none. */
import grpc from "@grpc/grpc-js";

const text = {
  requestSerialize: (value) => Buffer.from(value),
  requestDeserialize: String,
  responseSerialize: (value) => Buffer.from(value),
  responseDeserialize: String,
};
const method = (name, responseStream) => ({
  ...{ path: `/world.Greeter/${name}`, requestStream: false, responseStream },
  ...text,
});
const Greeter = grpc.makeGenericClientConstructor(
  { Greet: method("Greet", false), Count: method("Count", true), Hidden: method("Hidden", false) },
  "Greeter",
);

const [host, ...names] = process.argv.slice(2);
const client = new Greeter(`${host}:443`, grpc.credentials.createSsl());
const options = () => ({ deadline: Date.now() + 60_000 });
const failed = (error) => console.log(`failed: ${grpc.status[error.code]} ${error.details}`);

const stream = (name) =>
  new Promise((resolve) => {
    const answers = client[name]("3", new grpc.Metadata(), options());
    answers.on("data", (answer) => console.log(answer));
    answers.on("error", (error) => resolve(failed(error)));
    answers.on("end", resolve);
  });
const call = (name) =>
  new Promise((resolve) => {
    client[name]("guest", new grpc.Metadata(), options(), (error, answer) =>
      resolve(error ? failed(error) : console.log(answer)),
    );
  });

for (const name of names) await (name === "Count" ? stream : call)(name);
client.close();
