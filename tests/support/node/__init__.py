"""Node.js and the npm packages of examples/javascript."""
