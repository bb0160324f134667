const answer = 42;
