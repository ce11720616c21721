"""For each shipped task, edits that solve it: proof that it can be solved, and nothing else."""

SOLUTIONS: dict[str, list[tuple[str, str]]] = {
    "absolute": [("if number > 0", "if number < 0")],
    "account": [("self.balance = amount", "self.balance += amount"), ("amount < s", "amount <= s")],
    "adult": [("age > 18", "age >= 18")],
    "area": [("width + height", "width * height")],
    "average": [("// (len(numbers) - 1)", "/ len(numbers)")],
    "cart": [
        ("PRICES[name]", "PRICES[name.lower()]"),
        ("price_of(name)\n    return", "price_of(name) * cart[name]\n    return"),
    ],
    "celsius": [("5 / 9", "9 / 5")],
    "clamp": [("return high\n    return number", "return low\n    return min(number, high)")],
    "digits": [("number > 10", "number > 0"), ("number / 10", "number // 10")],
    "discount": [("price - percent", "price * (100 - percent) / 100")],
    "double": [("number + 2", "number * 2")],
    "even": [("% 2 == 1", "% 2 == 0")],
    "factorial": [("result = 0", "result = 1"), ("range(1, n)", "range(1, n + 1)")],
    "fizzbuzz": [
        ("    if n % 3", '    if n % 15 == 0:\n        return "FizzBuzz"\n    if n % 3'),
        ("return n\n", "return str(n)\n"),
    ],
    "flatten": [("append", "extend")],
    "gcd": [("a = b\n        b = a % b", "a, b = b, a % b")],
    "largest": [("best = 0", "best = numbers[0]"), ("max(", "min(")],
    "leap": [("year % 4 == 0", "year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)")],
    "median": [
        ("    middle =", "    numbers = sorted(numbers)\n    middle ="),
        (
            "return n",
            "if len(numbers) % 2 == 0:\n"
            "        return sum(numbers[middle - 1 : middle + 1]) / 2\n"
            "    return n",
        ),
    ],
    "merge": [("return result", "return result + first[i:] + second[j:]")],
    "palindrome": [("text == text[1:]", "text.lower() == text.lower()[::-1]")],
    "power": [("result = base\n", "result = 1\n"), ("number * 2", "number * number")],
    "reverse": [("text[1:]", "text[::-1]")],
    "running": [
        (
            "totals.append(total)\n        total = number",
            "total += number\n        totals.append(total)",
        )
    ],
    "stack": [("insert(0, item)", "append(item)"), ("> 0", "== 0")],
    "sum_even": [("number % 2:", "number % 2 == 0:"), ("number < 0", "number > 0")],
    "unique": [("if item in", "if item not in")],
    "vowels": [('letter in "aei"', 'letter.lower() in "aeiou"'), ("count = 1", "count += 1")],
    "words": [("word > longest", "len(word) > len(longest)"), ("len(text)", "len(text.split())")],
}
