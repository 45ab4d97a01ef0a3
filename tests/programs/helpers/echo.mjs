// Node: net echo, HTTP and cluster: echo.mjs server|client|cluster PORT.
import net from "node:net";
import http from "node:http";
import cluster from "node:cluster";
import { createHash } from "node:crypto";

const [kind, portText] = process.argv.slice(2);
const port = Number(portText);
const CONNECTIONS = 12;

// Bytes that look random and are the same for the same number.
function data(number, length) {
  const bytes = Buffer.alloc(length);
  let state = number * 2654435761 + 1;
  for (let index = 0; index < length; index++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes[index] = state >>> 24;
  }
  return bytes;
}

const hash = (bytes) => createHash("sha256").update(bytes).digest("hex");

function serve() {
  net.createServer({ allowHalfOpen: true }, (socket) => socket.on("error", () => {}).pipe(socket)).listen(port, "127.0.0.1");
  http
    .createServer((request, response) => {
      const digest = createHash("sha256");
      request.on("data", (block) => digest.update(block));
      request.on("end", () => {
        const large = data(7, 3_000_000);
        response.setHeader("x-digest", digest.digest("hex"));
        response.setHeader("content-length", large.length);
        response.end(large);
      });
    })
    .listen(port + 1, "127.0.0.1");
}

function echo(number) {
  return new Promise((resolve, reject) => {
    const sent = data(number, 1_500_000 + number);
    const received = [];
    const socket = net.connect(port, "127.0.0.1", () => {
      let at = 0;
      const sizes = [1, 100, 5000, 65536, 200_000];
      const write = () => {
        while (at < sent.length) {
          const size = sizes[(at + number) % sizes.length];
          const more = socket.write(sent.subarray(at, at + size));
          at += size;
          if (!more) return socket.once("drain", write);
        }
        socket.end();
      };
      write();
    });
    socket.on("data", (block) => received.push(block));
    socket.on("error", reject);
    socket.on("end", () => resolve(hash(Buffer.concat(received)) === hash(sent)));
  });
}

function post(agent, number) {
  return new Promise((resolve, reject) => {
    const body = data(number, 400_000);
    const request = http.request({ port: port + 1, host: "127.0.0.1", method: "POST", agent }, (response) => {
      const received = [];
      response.on("data", (block) => received.push(block));
      response.on("end", () =>
        resolve(response.headers["x-digest"] === hash(body) && hash(Buffer.concat(received)) === hash(data(7, 3_000_000))));
    });
    request.on("error", reject);
    request.end(body);
  });
}

function errors() {
  return new Promise((resolve) => {
    // Port 1 of loopback: nobody.
    const socket = net.connect(1, "127.0.0.1");
    socket.on("error", (error) => resolve(error.code));
    socket.on("connect", () => resolve("connected"));
  });
}

async function client() {
  const numbers = [...Array(CONNECTIONS).keys()];
  const echoes = await Promise.all(numbers.map(echo));
  console.log("echo", echoes.filter(Boolean).length, "of", CONNECTIONS);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 3 });
  const posts = await Promise.all(numbers.map((number) => post(agent, number)));
  agent.destroy();
  console.log("http", posts.filter(Boolean).length, "of", CONNECTIONS);
  console.log("nobody", await errors());
}

if (kind === "server") {
  serve();
} else if (kind === "cluster") {
  // Workers get the connections from their parent, over a UNIX socket.
  if (cluster.isPrimary) {
    for (let number = 0; number < 2; number++) cluster.fork();
    process.on("SIGTERM", () => process.exit(0));
  } else {
    serve();
  }
} else {
  await client();
}
